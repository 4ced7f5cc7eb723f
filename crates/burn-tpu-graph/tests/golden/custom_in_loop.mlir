// %0 = parameter {index = 0} : f32[4,8]
// %1 = for %0 {trips = 3, body = (%0 = parameter {index = 0} : f32[4,8]; %1 = custom_call %0 {name = less, form = stablehlo(aefef8646c4f4c2e90dec4d33d383e6d72502c245e199a89414dc18184e1f014 (f32[4,8]) -> (f32[4,8])), plain = (%0 = parameter {index = 0} : f32[4,8]; %1 = for %0 {trips = 2, body = (%0 = parameter {index = 0} : f32[4,8]; %1 = tanh %0 : f32[4,8]; outputs %1)} : f32[4,8]; %2 = reduce %1 {combine = Sum, dims = [1]} : f32[4]; %3 = broadcast_in_dim %2 {mapping = [0]} : f32[4,8]; %4 = subtract %0, %3 : f32[4,8]; outputs %4)} : f32[4,8]; outputs %1)} : f32[4,8]
// outputs %1

module @program {
  func.func @main(%arg0: tensor<4x8xf32>) -> (tensor<4x8xf32>) {
    %t0 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %1:2 = "stablehlo.while"(%arg0, %t0) ({
    ^bb0(%a0: tensor<4x8xf32>, %a1: tensor<i32>):
      %r0 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.compare"(%a1, %r0) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%r1) : (tensor<i1>) -> ()
    }, {
    ^bb0(%a0: tensor<4x8xf32>, %a1: tensor<i32>):
      %left = "func.call"(%a0) {callee = @body1} : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %r0 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.add"(%a1, %r0) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%left, %r1) : (tensor<4x8xf32>, tensor<i32>) -> ()
    }) : (tensor<4x8xf32>, tensor<i32>) -> (tensor<4x8xf32>, tensor<i32>)
    "func.return"(%1#0) : (tensor<4x8xf32>) -> ()
  }
  func.func private @less_cd324020633f(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>) {
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %once = stablehlo.tanh %x : tensor<4x8xf32>
        %twice = stablehlo.tanh %once : tensor<4x8xf32>
        %sum = stablehlo.reduce(%twice init: %zero) applies stablehlo.add across dimensions = [1]
            : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
        %all = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
        %less = stablehlo.subtract %x, %all : tensor<4x8xf32>
        return %less : tensor<4x8xf32>
    }
  func.func private @body1(%arg0: tensor<4x8xf32>) -> (tensor<4x8xf32>) {
    %1 = "func.call"(%arg0) {callee = @less_cd324020633f} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    "func.return"(%1) : (tensor<4x8xf32>) -> ()
  }
}
