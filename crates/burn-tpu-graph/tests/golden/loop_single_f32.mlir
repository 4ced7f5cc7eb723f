// %0 = parameter {index = 0} : f32[4]
// %1 = for %0 {trips = 3, body = (%0 = parameter {index = 0} : f32[4]; %1 = reverse %0 {dims = [0]} : f32[4]; outputs %1)} : f32[4]
// outputs %1

module @program {
  func.func @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>) {
    %t0 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %1:2 = "stablehlo.while"(%arg0, %t0) ({
    ^bb0(%a0: tensor<4xf32>, %a1: tensor<i32>):
      %r0 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.compare"(%a1, %r0) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%r1) : (tensor<i1>) -> ()
    }, {
    ^bb0(%a0: tensor<4xf32>, %a1: tensor<i32>):
      %left = "func.call"(%a0) {callee = @body0} : (tensor<4xf32>) -> tensor<4xf32>
      %r0 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.add"(%a1, %r0) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%left, %r1) : (tensor<4xf32>, tensor<i32>) -> ()
    }) : (tensor<4xf32>, tensor<i32>) -> (tensor<4xf32>, tensor<i32>)
    "func.return"(%1#0) : (tensor<4xf32>) -> ()
  }
  func.func private @body0(%arg0: tensor<4xf32>) -> (tensor<4xf32>) {
    %1 = "stablehlo.reverse"(%arg0) {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%1) : (tensor<4xf32>) -> ()
  }
}
