// %0 = parameter {index = 0} : f32[2,3,4]
// %1 = parameter {index = 1} : f32[2,0]
// %2 = reduce %0 {combine = Sum, dims = [1]} : f32[2,4]
// %3 = reduce %0 {combine = Sum, dims = [0, 1, 2]} : f32[]
// %4 = reduce %1 {combine = Sum, dims = [1]} : f32[2]
// outputs %2, %3, %4

module @program {
  func.func @main(%arg0: tensor<2x3x4xf32>, %arg1: tensor<2x0xf32>) -> (tensor<2x4xf32>, tensor<f32>, tensor<2xf32>) {
    %t0 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
    %2 = "stablehlo.reduce"(%arg0, %t0) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%r0) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<2x4xf32>
    %t1 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
    %3 = "stablehlo.reduce"(%arg0, %t1) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%r0) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 0, 1, 2>} : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<f32>
    %t2 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
    %4 = "stablehlo.reduce"(%arg1, %t2) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%r0) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x0xf32>, tensor<f32>) -> tensor<2xf32>
    "func.return"(%2, %3, %4) : (tensor<2x4xf32>, tensor<f32>, tensor<2xf32>) -> ()
  }
}
