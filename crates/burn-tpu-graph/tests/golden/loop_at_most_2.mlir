// %0 = parameter {index = 0} : f32[2]
// %1 = constant {value = 0} : i32[]
// %2 = slot {index = 0} : i32[]
// %3 = constant {value = 2} : i32[]
// %4 = constant {value = 0} : i32[]
// %5 = multiply %2, %4 : i32[]
// %6 = add %5, %3 : i32[]
// %7 = for %0, %1, %6 {at_most = 5, body = (%0 = parameter {index = 0} : f32[2]; %1 = parameter {index = 1} : i32[]; %2 = parameter {index = 2} : i32[]; %3 = add %0, %0 : f32[2]; %4 = add %1, %2 : i32[]; outputs %3, %4)} : f32[2], i32[]
// %8 = get_result %7 {index = 1} : i32[]
// outputs %7, %8

module @program {
  func.func @main(%arg0: tensor<2xf32>, %arg1: tensor<1xi32>) -> (tensor<2xf32>, tensor<i32>) {
    %1 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %t0 = "stablehlo.slice"(%arg1) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<1xi32>) -> tensor<1xi32>
    %2 = "stablehlo.reshape"(%t0) : (tensor<1xi32>) -> tensor<i32>
    %3 = "stablehlo.constant"() {value = dense<2> : tensor<i32>} : () -> tensor<i32>
    %4 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %5 = "stablehlo.multiply"(%2, %4) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %6 = "stablehlo.add"(%5, %3) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %t1 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %t2 = "stablehlo.constant"() {value = dense<5> : tensor<i32>} : () -> tensor<i32>
    %t3 = "stablehlo.minimum"(%6, %t2) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %7:4 = "stablehlo.while"(%arg0, %1, %t1, %t3) ({
    ^bb0(%a0: tensor<2xf32>, %a1: tensor<i32>, %a2: tensor<i32>, %a3: tensor<i32>):
      %r0 = "stablehlo.compare"(%a2, %a3) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%r0) : (tensor<i1>) -> ()
    }, {
    ^bb0(%a0: tensor<2xf32>, %a1: tensor<i32>, %a2: tensor<i32>, %a3: tensor<i32>):
      %left:2 = "func.call"(%a0, %a1, %a2) {callee = @body0} : (tensor<2xf32>, tensor<i32>, tensor<i32>) -> (tensor<2xf32>, tensor<i32>)
      %r0 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.add"(%a2, %r0) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%left#0, %left#1, %r1, %a3) : (tensor<2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> ()
    }) : (tensor<2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> (tensor<2xf32>, tensor<i32>, tensor<i32>, tensor<i32>)
    "func.return"(%7#0, %7#1) : (tensor<2xf32>, tensor<i32>) -> ()
  }
  func.func private @body0(%arg0: tensor<2xf32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> (tensor<2xf32>, tensor<i32>) {
    %3 = "stablehlo.add"(%arg0, %arg0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %4 = "stablehlo.add"(%arg1, %arg2) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "func.return"(%3, %4) : (tensor<2xf32>, tensor<i32>) -> ()
  }
}
