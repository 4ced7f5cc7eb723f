// %0 = parameter {index = 0} : f32[2,3,5,6]
// %1 = reduce_window %0 {combine = Max, dims = [1, 1, 2, 3], strides = [1, 1, 2, 1], base_dilation = [1, 1, 1, 1], window_dilation = [1, 1, 1, 1], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]} : f32[2,3,2,4]
// %2 = reduce_window %0 {combine = Max, dims = [1, 1, 1, 6], strides = [1, 1, 1, 1], base_dilation = [1, 1, 1, 1], window_dilation = [1, 1, 1, 1], padding = [(0, 0), (0, 0), (0, 0), (5, 0)]} : f32[2,3,5,6]
// %3 = reduce_window %0 {combine = Max, dims = [1, 1, 2, 2], strides = [1, 1, 1, 1], base_dilation = [1, 1, 2, 1], window_dilation = [1, 1, 1, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]} : f32[2,3,8,4]
// outputs %1, %2, %3

module @program {
  func.func @main(%arg0: tensor<2x3x5x6xf32>) -> (tensor<2x3x2x4xf32>, tensor<2x3x5x6xf32>, tensor<2x3x8x4xf32>) {
    %t0 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
    %1 = "stablehlo.reduce_window"(%arg0, %t0) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.maximum"(%a0, %a1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%r0) : (tensor<f32>) -> ()
    }) {window_dimensions = array<i64: 1, 1, 2, 3>, window_strides = array<i64: 1, 1, 2, 1>, base_dilations = array<i64: 1, 1, 1, 1>, window_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [0, 0], [0, 0], [0, 0]]> : tensor<4x2xi64>} : (tensor<2x3x5x6xf32>, tensor<f32>) -> tensor<2x3x2x4xf32>
    %t1 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
    %2 = "stablehlo.reduce_window"(%arg0, %t1) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.maximum"(%a0, %a1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%r0) : (tensor<f32>) -> ()
    }) {window_dimensions = array<i64: 1, 1, 1, 6>, window_strides = array<i64: 1, 1, 1, 1>, base_dilations = array<i64: 1, 1, 1, 1>, window_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [0, 0], [0, 0], [5, 0]]> : tensor<4x2xi64>} : (tensor<2x3x5x6xf32>, tensor<f32>) -> tensor<2x3x5x6xf32>
    %t2 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
    %3 = "stablehlo.reduce_window"(%arg0, %t2) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.maximum"(%a0, %a1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%r0) : (tensor<f32>) -> ()
    }) {window_dimensions = array<i64: 1, 1, 2, 2>, window_strides = array<i64: 1, 1, 1, 1>, base_dilations = array<i64: 1, 1, 2, 1>, window_dilations = array<i64: 1, 1, 1, 2>, padding = dense<[[0, 0], [0, 0], [0, 0], [0, 0]]> : tensor<4x2xi64>} : (tensor<2x3x5x6xf32>, tensor<f32>) -> tensor<2x3x8x4xf32>
    "func.return"(%1, %2, %3) : (tensor<2x3x2x4xf32>, tensor<2x3x5x6xf32>, tensor<2x3x8x4xf32>) -> ()
  }
}
