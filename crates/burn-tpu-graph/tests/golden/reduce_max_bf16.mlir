// %0 = parameter {index = 0} : bf16[2,3,4]
// %1 = parameter {index = 1} : bf16[2,0]
// %2 = reduce %0 {combine = Max, dims = [1]} : bf16[2,4]
// %3 = reduce %0 {combine = Max, dims = [0, 1, 2]} : bf16[]
// %4 = reduce %1 {combine = Max, dims = [1]} : bf16[2]
// outputs %2, %3, %4

module @program {
  func.func @main(%arg0: tensor<2x3x4xbf16>, %arg1: tensor<2x0xbf16>) -> (tensor<2x4xbf16>, tensor<bf16>, tensor<2xbf16>) {
    %t0 = "stablehlo.constant"() {value = dense<0xFF80> : tensor<bf16>} : () -> tensor<bf16>
    %2 = "stablehlo.reduce"(%arg0, %t0) ({
    ^bb0(%a0: tensor<bf16>, %a1: tensor<bf16>):
      %r0 = "stablehlo.maximum"(%a0, %a1) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
      "stablehlo.return"(%r0) : (tensor<bf16>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x3x4xbf16>, tensor<bf16>) -> tensor<2x4xbf16>
    %t1 = "stablehlo.constant"() {value = dense<0xFF80> : tensor<bf16>} : () -> tensor<bf16>
    %3 = "stablehlo.reduce"(%arg0, %t1) ({
    ^bb0(%a0: tensor<bf16>, %a1: tensor<bf16>):
      %r0 = "stablehlo.maximum"(%a0, %a1) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
      "stablehlo.return"(%r0) : (tensor<bf16>) -> ()
    }) {dimensions = array<i64: 0, 1, 2>} : (tensor<2x3x4xbf16>, tensor<bf16>) -> tensor<bf16>
    %t2 = "stablehlo.constant"() {value = dense<0xFF80> : tensor<bf16>} : () -> tensor<bf16>
    %4 = "stablehlo.reduce"(%arg1, %t2) ({
    ^bb0(%a0: tensor<bf16>, %a1: tensor<bf16>):
      %r0 = "stablehlo.maximum"(%a0, %a1) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
      "stablehlo.return"(%r0) : (tensor<bf16>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x0xbf16>, tensor<bf16>) -> tensor<2xbf16>
    "func.return"(%2, %3, %4) : (tensor<2x4xbf16>, tensor<bf16>, tensor<2xbf16>) -> ()
  }
}
