// %0 = parameter {index = 0} : bf16[3]
// %1 = convert %0 : i1[3]
// %2 = convert %0 : i8[3]
// %3 = convert %0 : i16[3]
// %4 = convert %0 : i32[3]
// %5 = convert %0 : i64[3]
// %6 = convert %0 : ui8[3]
// %7 = convert %0 : ui16[3]
// %8 = convert %0 : ui32[3]
// %9 = convert %0 : ui64[3]
// %10 = convert %0 : f16[3]
// %11 = convert %0 : f32[3]
// %12 = convert %0 : f64[3]
// outputs %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12

module @program {
  func.func @main(%arg0: tensor<3xbf16>) -> (tensor<3xi1>, tensor<3xi8>, tensor<3xi16>, tensor<3xi32>, tensor<3xi64>, tensor<3xui8>, tensor<3xui16>, tensor<3xui32>, tensor<3xui64>, tensor<3xf16>, tensor<3xf32>, tensor<3xf64>) {
    %1 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xi1>
    %2 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xi8>
    %3 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xi16>
    %4 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xi32>
    %5 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xi64>
    %6 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xui8>
    %7 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xui16>
    %8 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xui32>
    %9 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xui64>
    %10 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xf16>
    %11 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xf32>
    %12 = "stablehlo.convert"(%arg0) : (tensor<3xbf16>) -> tensor<3xf64>
    "func.return"(%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12) : (tensor<3xi1>, tensor<3xi8>, tensor<3xi16>, tensor<3xi32>, tensor<3xi64>, tensor<3xui8>, tensor<3xui16>, tensor<3xui32>, tensor<3xui64>, tensor<3xf16>, tensor<3xf32>, tensor<3xf64>) -> ()
  }
}
