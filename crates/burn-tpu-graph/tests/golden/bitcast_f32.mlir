// %0 = parameter {index = 0} : f32[3]
// %1 = bitcast_convert %0 : i32[3]
// %2 = bitcast_convert %0 : ui32[3]
// outputs %1, %2

module @program {
  func.func @main(%arg0: tensor<3xf32>) -> (tensor<3xi32>, tensor<3xui32>) {
    %1 = "stablehlo.bitcast_convert"(%arg0) : (tensor<3xf32>) -> tensor<3xi32>
    %2 = "stablehlo.bitcast_convert"(%arg0) : (tensor<3xf32>) -> tensor<3xui32>
    "func.return"(%1, %2) : (tensor<3xi32>, tensor<3xui32>) -> ()
  }
}
