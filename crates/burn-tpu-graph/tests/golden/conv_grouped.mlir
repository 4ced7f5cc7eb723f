// %0 = parameter {index = 0} : f32[2,4,5]
// %1 = parameter {index = 1} : f32[6,2,3]
// %2 = convolution %0, %1 {strides = [1], padding = [(0, 0)], lhs_dilation = [1], rhs_dilation = [1], input = (0, 1, [2]), kernel = (0, 1, [2]), output = (0, 1, [2]), feature_groups = 2, batch_groups = 1} : f32[2,6,3]
// outputs %2

module @program {
  func.func @main(%arg0: tensor<2x4x5xf32>, %arg1: tensor<6x2x3xf32>) -> (tensor<2x6x3xf32>) {
    %2 = "stablehlo.convolution"(%arg0, %arg1) {window_strides = array<i64: 1>, padding = dense<[[0, 0]]> : tensor<1x2xi64>, lhs_dilation = array<i64: 1>, rhs_dilation = array<i64: 1>, dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, feature_group_count = 2 : i64, batch_group_count = 1 : i64} : (tensor<2x4x5xf32>, tensor<6x2x3xf32>) -> tensor<2x6x3xf32>
    "func.return"(%2) : (tensor<2x6x3xf32>) -> ()
  }
}
