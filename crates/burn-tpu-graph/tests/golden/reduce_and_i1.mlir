// %0 = parameter {index = 0} : i1[2,3,4]
// %1 = parameter {index = 1} : i1[2,0]
// %2 = reduce %0 {combine = And, dims = [1]} : i1[2,4]
// %3 = reduce %0 {combine = And, dims = [0, 1, 2]} : i1[]
// %4 = reduce %1 {combine = And, dims = [1]} : i1[2]
// outputs %2, %3, %4

module @program {
  func.func @main(%arg0: tensor<2x3x4xi1>, %arg1: tensor<2x0xi1>) -> (tensor<2x4xi1>, tensor<i1>, tensor<2xi1>) {
    %t0 = "stablehlo.constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %2 = "stablehlo.reduce"(%arg0, %t0) ({
    ^bb0(%a0: tensor<i1>, %a1: tensor<i1>):
      %r0 = "stablehlo.and"(%a0, %a1) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      "stablehlo.return"(%r0) : (tensor<i1>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x3x4xi1>, tensor<i1>) -> tensor<2x4xi1>
    %t1 = "stablehlo.constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %3 = "stablehlo.reduce"(%arg0, %t1) ({
    ^bb0(%a0: tensor<i1>, %a1: tensor<i1>):
      %r0 = "stablehlo.and"(%a0, %a1) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      "stablehlo.return"(%r0) : (tensor<i1>) -> ()
    }) {dimensions = array<i64: 0, 1, 2>} : (tensor<2x3x4xi1>, tensor<i1>) -> tensor<i1>
    %t2 = "stablehlo.constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %4 = "stablehlo.reduce"(%arg1, %t2) ({
    ^bb0(%a0: tensor<i1>, %a1: tensor<i1>):
      %r0 = "stablehlo.and"(%a0, %a1) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      "stablehlo.return"(%r0) : (tensor<i1>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x0xi1>, tensor<i1>) -> tensor<2xi1>
    "func.return"(%2, %3, %4) : (tensor<2x4xi1>, tensor<i1>, tensor<2xi1>) -> ()
  }
}
