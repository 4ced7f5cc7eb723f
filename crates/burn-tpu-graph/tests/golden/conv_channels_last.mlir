// %0 = parameter {index = 0} : f32[2,4,4,3]
// %1 = parameter {index = 1} : f32[2,2,3,5]
// %2 = convolution %0, %1 {strides = [1, 1], padding = [(0, 0), (0, 0)], lhs_dilation = [1, 1], rhs_dilation = [1, 1], input = (0, 3, [1, 2]), kernel = (3, 2, [1, 0]), output = (0, 3, [1, 2]), feature_groups = 1, batch_groups = 1} : f32[2,3,3,5]
// outputs %2

module @program {
  func.func @main(%arg0: tensor<2x4x4x3xf32>, %arg1: tensor<2x2x3x5xf32>) -> (tensor<2x3x3x5xf32>) {
    %2 = "stablehlo.convolution"(%arg0, %arg1) {window_strides = array<i64: 1, 1>, padding = dense<[[0, 0], [0, 0]]> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[1, 0, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64} : (tensor<2x4x4x3xf32>, tensor<2x2x3x5xf32>) -> tensor<2x3x3x5xf32>
    "func.return"(%2) : (tensor<2x3x3x5xf32>) -> ()
  }
}
