// %0 = parameter {index = 0} : ui8[2,3,4]
// %1 = parameter {index = 1} : ui8[2,0]
// %2 = reduce %0 {combine = Min, dims = [1]} : ui8[2,4]
// %3 = reduce %0 {combine = Min, dims = [0, 1, 2]} : ui8[]
// %4 = reduce %1 {combine = Min, dims = [1]} : ui8[2]
// outputs %2, %3, %4

module @program {
  func.func @main(%arg0: tensor<2x3x4xui8>, %arg1: tensor<2x0xui8>) -> (tensor<2x4xui8>, tensor<ui8>, tensor<2xui8>) {
    %t0 = "stablehlo.constant"() {value = dense<255> : tensor<ui8>} : () -> tensor<ui8>
    %2 = "stablehlo.reduce"(%arg0, %t0) ({
    ^bb0(%a0: tensor<ui8>, %a1: tensor<ui8>):
      %r0 = "stablehlo.minimum"(%a0, %a1) : (tensor<ui8>, tensor<ui8>) -> tensor<ui8>
      "stablehlo.return"(%r0) : (tensor<ui8>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x3x4xui8>, tensor<ui8>) -> tensor<2x4xui8>
    %t1 = "stablehlo.constant"() {value = dense<255> : tensor<ui8>} : () -> tensor<ui8>
    %3 = "stablehlo.reduce"(%arg0, %t1) ({
    ^bb0(%a0: tensor<ui8>, %a1: tensor<ui8>):
      %r0 = "stablehlo.minimum"(%a0, %a1) : (tensor<ui8>, tensor<ui8>) -> tensor<ui8>
      "stablehlo.return"(%r0) : (tensor<ui8>) -> ()
    }) {dimensions = array<i64: 0, 1, 2>} : (tensor<2x3x4xui8>, tensor<ui8>) -> tensor<ui8>
    %t2 = "stablehlo.constant"() {value = dense<255> : tensor<ui8>} : () -> tensor<ui8>
    %4 = "stablehlo.reduce"(%arg1, %t2) ({
    ^bb0(%a0: tensor<ui8>, %a1: tensor<ui8>):
      %r0 = "stablehlo.minimum"(%a0, %a1) : (tensor<ui8>, tensor<ui8>) -> tensor<ui8>
      "stablehlo.return"(%r0) : (tensor<ui8>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x0xui8>, tensor<ui8>) -> tensor<2xui8>
    "func.return"(%2, %3, %4) : (tensor<2x4xui8>, tensor<ui8>, tensor<2xui8>) -> ()
  }
}
