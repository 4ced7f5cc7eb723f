// %0 = parameter {index = 0} : ui64[2]
// %1 = rng_bit_generator %0 : ui64[2], ui32[3,5]
// %2 = get_result %1 {index = 1} : ui32[3,5]
// %3 = rng_bit_generator %1 : ui64[2], ui64[4]
// %4 = get_result %3 {index = 1} : ui64[4]
// %5 = rng_bit_generator %3 : ui64[2], ui32[0]
// %6 = get_result %5 {index = 1} : ui32[0]
// %7 = rng_bit_generator %5 : ui64[2], ui32[]
// %8 = get_result %7 {index = 1} : ui32[]
// outputs %7, %2, %4, %6, %8

module @program {
  func.func @main(%arg0: tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>, tensor<4xui64>, tensor<0xui32>, tensor<ui32>) {
    %1:2 = "stablehlo.rng_bit_generator"(%arg0) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>)
    %3:2 = "stablehlo.rng_bit_generator"(%1#0) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui64>)
    %5:2 = "stablehlo.rng_bit_generator"(%3#0) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<0xui32>)
    %7:2 = "stablehlo.rng_bit_generator"(%5#0) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<ui32>)
    "func.return"(%7#0, %1#1, %3#1, %5#1, %7#1) : (tensor<2xui64>, tensor<3x5xui32>, tensor<4xui64>, tensor<0xui32>, tensor<ui32>) -> ()
  }
}
