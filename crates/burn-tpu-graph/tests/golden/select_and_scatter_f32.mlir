// %0 = parameter {index = 0} : f32[2,2,4,5]
// %1 = parameter {index = 1} : f32[2,2,2,3]
// %2 = select_and_scatter %0, %1 {dims = [1, 1, 2, 3], strides = [1, 1, 2, 2], base_dilation = [1, 1, 1, 1], window_dilation = [1, 1, 1, 1], padding = [(0, 0), (0, 0), (0, 0), (1, 1)]} : f32[2,2,4,5]
// outputs %2

module @program {
  func.func @main(%arg0: tensor<2x2x4x5xf32>, %arg1: tensor<2x2x2x3xf32>) -> (tensor<2x2x4x5xf32>) {
    %t0 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
    %2 = "stablehlo.select_and_scatter"(%arg0, %arg1, %t0) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.compare"(%a0, %a1) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%r0) : (tensor<i1>) -> ()
    }, {
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%r0) : (tensor<f32>) -> ()
    }) {window_dimensions = array<i64: 1, 1, 2, 3>, window_strides = array<i64: 1, 1, 2, 2>, padding = dense<[[0, 0], [0, 0], [0, 0], [1, 1]]> : tensor<4x2xi64>} : (tensor<2x2x4x5xf32>, tensor<2x2x2x3xf32>, tensor<f32>) -> tensor<2x2x4x5xf32>
    "func.return"(%2) : (tensor<2x2x4x5xf32>) -> ()
  }
}
