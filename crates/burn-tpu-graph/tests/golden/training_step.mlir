// %0 = parameter {index = 0} : f32[8,3]
// %1 = parameter {index = 1} : f32[3,2]
// %2 = parameter {index = 2} : f32[2]
// %3 = dot_general %0, %1 {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} : f32[8,2]
// %4 = broadcast_in_dim %2 {mapping = [1]} : f32[8,2]
// %5 = add %3, %4 : f32[8,2]
// %6 = constant {value = 0.0} : f32[8,2]
// %7 = maximum %5, %6 : f32[8,2]
// %8 = dot_general %0, %7 {lhs_batch = [], rhs_batch = [], lhs_contract = [0], rhs_contract = [0]} : f32[3,2]
// %9 = reduce %7 {combine = Sum, dims = [0]} : f32[2]
// %10 = slot {index = 0} : f32[]
// %11 = broadcast_in_dim %10 {mapping = []} : f32[3,2]
// %12 = multiply %8, %11 : f32[3,2]
// %13 = subtract %1, %12 : f32[3,2]
// %14 = broadcast_in_dim %10 {mapping = []} : f32[2]
// %15 = multiply %9, %14 : f32[2]
// %16 = subtract %2, %15 : f32[2]
// outputs %13, %16

module @program {
  func.func @main(%arg0: tensor<8x3xf32>, %arg1: tensor<3x2xf32> {tf.aliasing_output = 0 : i32}, %arg2: tensor<2xf32> {tf.aliasing_output = 1 : i32}, %arg3: tensor<1xi32>) -> (tensor<3x2xf32>, tensor<2xf32>) {
    %3 = "stablehlo.dot_general"(%arg0, %arg1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>} : (tensor<8x3xf32>, tensor<3x2xf32>) -> tensor<8x2xf32>
    %4 = "stablehlo.broadcast_in_dim"(%arg2) {broadcast_dimensions = array<i64: 1>} : (tensor<2xf32>) -> tensor<8x2xf32>
    %5 = "stablehlo.add"(%3, %4) : (tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<8x2xf32>
    %6 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<8x2xf32>} : () -> tensor<8x2xf32>
    %7 = "stablehlo.maximum"(%5, %6) : (tensor<8x2xf32>, tensor<8x2xf32>) -> tensor<8x2xf32>
    %8 = "stablehlo.dot_general"(%arg0, %7) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>} : (tensor<8x3xf32>, tensor<8x2xf32>) -> tensor<3x2xf32>
    %t0 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
    %9 = "stablehlo.reduce"(%7, %t0) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%r0) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 0>} : (tensor<8x2xf32>, tensor<f32>) -> tensor<2xf32>
    %t1 = "stablehlo.slice"(%arg3) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<1xi32>) -> tensor<1xi32>
    %t2 = "stablehlo.reshape"(%t1) : (tensor<1xi32>) -> tensor<i32>
    %10 = "stablehlo.bitcast_convert"(%t2) : (tensor<i32>) -> tensor<f32>
    %11 = "stablehlo.broadcast_in_dim"(%10) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3x2xf32>
    %12 = "stablehlo.multiply"(%8, %11) : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
    %13 = "stablehlo.subtract"(%arg1, %12) : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
    %14 = "stablehlo.broadcast_in_dim"(%10) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2xf32>
    %15 = "stablehlo.multiply"(%9, %14) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %16 = "stablehlo.subtract"(%arg2, %15) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    "func.return"(%13, %16) : (tensor<3x2xf32>, tensor<2xf32>) -> ()
  }
}
