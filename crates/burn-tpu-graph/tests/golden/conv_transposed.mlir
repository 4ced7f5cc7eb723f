// %0 = parameter {index = 0} : f32[2,3,4,4]
// %1 = parameter {index = 1} : f32[3,5,3,3]
// %2 = reverse %1 {dims = [2, 3]} : f32[3,5,3,3]
// %3 = convolution %0, %2 {strides = [1, 1], padding = [(2, 2), (1, -1)], lhs_dilation = [2, 2], rhs_dilation = [1, 1], input = (0, 1, [2, 3]), kernel = (1, 0, [2, 3]), output = (0, 1, [2, 3]), feature_groups = 1, batch_groups = 1} : f32[2,5,9,5]
// outputs %3

module @program {
  func.func @main(%arg0: tensor<2x3x4x4xf32>, %arg1: tensor<3x5x3x3xf32>) -> (tensor<2x5x9x5xf32>) {
    %2 = "stablehlo.reverse"(%arg1) {dimensions = array<i64: 2, 3>} : (tensor<3x5x3x3xf32>) -> tensor<3x5x3x3xf32>
    %3 = "stablehlo.convolution"(%arg0, %2) {window_strides = array<i64: 1, 1>, padding = dense<[[2, 2], [1, -1]]> : tensor<2x2xi64>, lhs_dilation = array<i64: 2, 2>, rhs_dilation = array<i64: 1, 1>, dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64} : (tensor<2x3x4x4xf32>, tensor<3x5x3x3xf32>) -> tensor<2x5x9x5xf32>
    "func.return"(%3) : (tensor<2x5x9x5xf32>) -> ()
  }
}
