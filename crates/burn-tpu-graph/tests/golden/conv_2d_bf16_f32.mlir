// %0 = parameter {index = 0} : bf16[2,3,5,5]
// %1 = parameter {index = 1} : bf16[4,3,2,2]
// %2 = convolution %0, %1 {strides = [1, 1], padding = [(0, 0), (0, 0)], lhs_dilation = [1, 1], rhs_dilation = [1, 1], input = (0, 1, [2, 3]), kernel = (0, 1, [2, 3]), output = (0, 1, [2, 3]), feature_groups = 1, batch_groups = 1} : f32[2,4,4,4]
// %3 = convolution %0, %1 {strides = [2, 2], padding = [(1, 0), (1, 0)], lhs_dilation = [1, 1], rhs_dilation = [2, 2], input = (0, 1, [2, 3]), kernel = (0, 1, [2, 3]), output = (0, 1, [2, 3]), feature_groups = 1, batch_groups = 1} : f32[2,4,2,2]
// outputs %2, %3

module @program {
  func.func @main(%arg0: tensor<2x3x5x5xbf16>, %arg1: tensor<4x3x2x2xbf16>) -> (tensor<2x4x4x4xf32>, tensor<2x4x2x2xf32>) {
    %2 = "stablehlo.convolution"(%arg0, %arg1) {window_strides = array<i64: 1, 1>, padding = dense<[[0, 0], [0, 0]]> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64} : (tensor<2x3x5x5xbf16>, tensor<4x3x2x2xbf16>) -> tensor<2x4x4x4xf32>
    %3 = "stablehlo.convolution"(%arg0, %arg1) {window_strides = array<i64: 2, 2>, padding = dense<[[1, 0], [1, 0]]> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 2, 2>, dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64} : (tensor<2x3x5x5xbf16>, tensor<4x3x2x2xbf16>) -> tensor<2x4x2x2xf32>
    "func.return"(%2, %3) : (tensor<2x4x4x4xf32>, tensor<2x4x2x2xf32>) -> ()
  }
}
