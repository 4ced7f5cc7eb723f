// %0 = parameter {index = 0} : f32[3,4]
// %1 = constant {value = 0} : i32[]
// %2 = for %0, %1 {trips = 2, body = (%0 = parameter {index = 0} : f32[3,4]; %1 = parameter {index = 1} : i32[]; %2 = for %0, %1 {trips = 3, body = (%0 = parameter {index = 0} : f32[3,4]; %1 = parameter {index = 1} : i32[]; %2 = parameter {index = 2} : i32[]; %3 = reduce %0 {combine = Max, dims = [1]} : f32[3]; %4 = broadcast_in_dim %3 {mapping = [0]} : f32[3,4]; %5 = subtract %0, %4 : f32[3,4]; %6 = add %1, %2 : i32[]; outputs %5, %6)} : f32[3,4], i32[]; %3 = get_result %2 {index = 1} : i32[]; %4 = tanh %2 : f32[3,4]; outputs %4, %3)} : f32[3,4], i32[]
// %3 = get_result %2 {index = 1} : i32[]
// outputs %2, %3

module @program {
  func.func @main(%arg0: tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<i32>) {
    %1 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %t0 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %2:3 = "stablehlo.while"(%arg0, %1, %t0) ({
    ^bb0(%a0: tensor<3x4xf32>, %a1: tensor<i32>, %a2: tensor<i32>):
      %r0 = "stablehlo.constant"() {value = dense<2> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.compare"(%a2, %r0) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%r1) : (tensor<i1>) -> ()
    }, {
    ^bb0(%a0: tensor<3x4xf32>, %a1: tensor<i32>, %a2: tensor<i32>):
      %left:2 = "func.call"(%a0, %a1) {callee = @body1} : (tensor<3x4xf32>, tensor<i32>) -> (tensor<3x4xf32>, tensor<i32>)
      %r0 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.add"(%a2, %r0) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%left#0, %left#1, %r1) : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> ()
    }) : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> (tensor<3x4xf32>, tensor<i32>, tensor<i32>)
    "func.return"(%2#0, %2#1) : (tensor<3x4xf32>, tensor<i32>) -> ()
  }
  func.func private @body0(%arg0: tensor<3x4xf32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> (tensor<3x4xf32>, tensor<i32>) {
    %t0 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
    %3 = "stablehlo.reduce"(%arg0, %t0) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.maximum"(%a0, %a1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%r0) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
    %4 = "stablehlo.broadcast_in_dim"(%3) {broadcast_dimensions = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x4xf32>
    %5 = "stablehlo.subtract"(%arg0, %4) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %6 = "stablehlo.add"(%arg1, %arg2) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "func.return"(%5, %6) : (tensor<3x4xf32>, tensor<i32>) -> ()
  }
  func.func private @body1(%arg0: tensor<3x4xf32>, %arg1: tensor<i32>) -> (tensor<3x4xf32>, tensor<i32>) {
    %t0 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %2:3 = "stablehlo.while"(%arg0, %arg1, %t0) ({
    ^bb0(%a0: tensor<3x4xf32>, %a1: tensor<i32>, %a2: tensor<i32>):
      %r0 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.compare"(%a2, %r0) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%r1) : (tensor<i1>) -> ()
    }, {
    ^bb0(%a0: tensor<3x4xf32>, %a1: tensor<i32>, %a2: tensor<i32>):
      %left:2 = "func.call"(%a0, %a1, %a2) {callee = @body0} : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> (tensor<3x4xf32>, tensor<i32>)
      %r0 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.add"(%a2, %r0) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%left#0, %left#1, %r1) : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> ()
    }) : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> (tensor<3x4xf32>, tensor<i32>, tensor<i32>)
    %4 = "stablehlo.tanh"(%2#0) : (tensor<3x4xf32>) -> tensor<3x4xf32>
    "func.return"(%4, %2#1) : (tensor<3x4xf32>, tensor<i32>) -> ()
  }
}
