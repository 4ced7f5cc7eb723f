// %0 = parameter {index = 0} : i32[2,3]
// %1 = parameter {index = 1} : i32[3,4]
// %2 = parameter {index = 2} : i32[5,2,3]
// %3 = parameter {index = 3} : i32[3,5,4]
// %4 = parameter {index = 4} : i32[4]
// %5 = parameter {index = 5} : i32[4]
// %6 = parameter {index = 6} : i32[2,0]
// %7 = parameter {index = 7} : i32[0,3]
// %8 = dot_general %0, %1 {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} : i64[2,4]
// %9 = dot_general %2, %3 {lhs_batch = [0], rhs_batch = [1], lhs_contract = [2], rhs_contract = [0]} : i64[5,2,4]
// %10 = dot_general %4, %5 {lhs_batch = [], rhs_batch = [], lhs_contract = [0], rhs_contract = [0]} : i64[]
// %11 = dot_general %4, %5 {lhs_batch = [], rhs_batch = [], lhs_contract = [], rhs_contract = []} : i64[4,4]
// %12 = dot_general %6, %7 {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} : i64[2,3]
// outputs %8, %9, %10, %11, %12

module @program {
  func.func @main(%arg0: tensor<2x3xi32>, %arg1: tensor<3x4xi32>, %arg2: tensor<5x2x3xi32>, %arg3: tensor<3x5x4xi32>, %arg4: tensor<4xi32>, %arg5: tensor<4xi32>, %arg6: tensor<2x0xi32>, %arg7: tensor<0x3xi32>) -> (tensor<2x4xi64>, tensor<5x2x4xi64>, tensor<i64>, tensor<4x4xi64>, tensor<2x3xi64>) {
    %t0 = "stablehlo.convert"(%arg0) : (tensor<2x3xi32>) -> tensor<2x3xi64>
    %t1 = "stablehlo.broadcast_in_dim"(%t0) {broadcast_dimensions = array<i64: 0, 2>} : (tensor<2x3xi64>) -> tensor<2x4x3xi64>
    %t2 = "stablehlo.convert"(%arg1) : (tensor<3x4xi32>) -> tensor<3x4xi64>
    %t3 = "stablehlo.broadcast_in_dim"(%t2) {broadcast_dimensions = array<i64: 2, 1>} : (tensor<3x4xi64>) -> tensor<2x4x3xi64>
    %t4 = "stablehlo.multiply"(%t1, %t3) : (tensor<2x4x3xi64>, tensor<2x4x3xi64>) -> tensor<2x4x3xi64>
    %t5 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %8 = "stablehlo.reduce"(%t4, %t5) ({
    ^bb0(%a0: tensor<i64>, %a1: tensor<i64>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      "stablehlo.return"(%r0) : (tensor<i64>) -> ()
    }) {dimensions = array<i64: 2>} : (tensor<2x4x3xi64>, tensor<i64>) -> tensor<2x4xi64>
    %t6 = "stablehlo.convert"(%arg2) : (tensor<5x2x3xi32>) -> tensor<5x2x3xi64>
    %t7 = "stablehlo.broadcast_in_dim"(%t6) {broadcast_dimensions = array<i64: 0, 1, 3>} : (tensor<5x2x3xi64>) -> tensor<5x2x4x3xi64>
    %t8 = "stablehlo.convert"(%arg3) : (tensor<3x5x4xi32>) -> tensor<3x5x4xi64>
    %t9 = "stablehlo.broadcast_in_dim"(%t8) {broadcast_dimensions = array<i64: 3, 0, 2>} : (tensor<3x5x4xi64>) -> tensor<5x2x4x3xi64>
    %t10 = "stablehlo.multiply"(%t7, %t9) : (tensor<5x2x4x3xi64>, tensor<5x2x4x3xi64>) -> tensor<5x2x4x3xi64>
    %t11 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %9 = "stablehlo.reduce"(%t10, %t11) ({
    ^bb0(%a0: tensor<i64>, %a1: tensor<i64>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      "stablehlo.return"(%r0) : (tensor<i64>) -> ()
    }) {dimensions = array<i64: 3>} : (tensor<5x2x4x3xi64>, tensor<i64>) -> tensor<5x2x4xi64>
    %t12 = "stablehlo.convert"(%arg4) : (tensor<4xi32>) -> tensor<4xi64>
    %t13 = "stablehlo.broadcast_in_dim"(%t12) {broadcast_dimensions = array<i64: 0>} : (tensor<4xi64>) -> tensor<4xi64>
    %t14 = "stablehlo.convert"(%arg5) : (tensor<4xi32>) -> tensor<4xi64>
    %t15 = "stablehlo.broadcast_in_dim"(%t14) {broadcast_dimensions = array<i64: 0>} : (tensor<4xi64>) -> tensor<4xi64>
    %t16 = "stablehlo.multiply"(%t13, %t15) : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>
    %t17 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %10 = "stablehlo.reduce"(%t16, %t17) ({
    ^bb0(%a0: tensor<i64>, %a1: tensor<i64>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      "stablehlo.return"(%r0) : (tensor<i64>) -> ()
    }) {dimensions = array<i64: 0>} : (tensor<4xi64>, tensor<i64>) -> tensor<i64>
    %t18 = "stablehlo.convert"(%arg4) : (tensor<4xi32>) -> tensor<4xi64>
    %t19 = "stablehlo.broadcast_in_dim"(%t18) {broadcast_dimensions = array<i64: 0>} : (tensor<4xi64>) -> tensor<4x4xi64>
    %t20 = "stablehlo.convert"(%arg5) : (tensor<4xi32>) -> tensor<4xi64>
    %t21 = "stablehlo.broadcast_in_dim"(%t20) {broadcast_dimensions = array<i64: 1>} : (tensor<4xi64>) -> tensor<4x4xi64>
    %t22 = "stablehlo.multiply"(%t19, %t21) : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi64>
    %t23 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %11 = "stablehlo.reduce"(%t22, %t23) ({
    ^bb0(%a0: tensor<i64>, %a1: tensor<i64>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      "stablehlo.return"(%r0) : (tensor<i64>) -> ()
    }) {dimensions = array<i64>} : (tensor<4x4xi64>, tensor<i64>) -> tensor<4x4xi64>
    %t24 = "stablehlo.convert"(%arg6) : (tensor<2x0xi32>) -> tensor<2x0xi64>
    %t25 = "stablehlo.broadcast_in_dim"(%t24) {broadcast_dimensions = array<i64: 0, 2>} : (tensor<2x0xi64>) -> tensor<2x3x0xi64>
    %t26 = "stablehlo.convert"(%arg7) : (tensor<0x3xi32>) -> tensor<0x3xi64>
    %t27 = "stablehlo.broadcast_in_dim"(%t26) {broadcast_dimensions = array<i64: 2, 1>} : (tensor<0x3xi64>) -> tensor<2x3x0xi64>
    %t28 = "stablehlo.multiply"(%t25, %t27) : (tensor<2x3x0xi64>, tensor<2x3x0xi64>) -> tensor<2x3x0xi64>
    %t29 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %12 = "stablehlo.reduce"(%t28, %t29) ({
    ^bb0(%a0: tensor<i64>, %a1: tensor<i64>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      "stablehlo.return"(%r0) : (tensor<i64>) -> ()
    }) {dimensions = array<i64: 2>} : (tensor<2x3x0xi64>, tensor<i64>) -> tensor<2x3xi64>
    "func.return"(%8, %9, %10, %11, %12) : (tensor<2x4xi64>, tensor<5x2x4xi64>, tensor<i64>, tensor<4x4xi64>, tensor<2x3xi64>) -> ()
  }
}
