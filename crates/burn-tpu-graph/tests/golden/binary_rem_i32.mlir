// %0 = parameter {index = 0} : i32[2,3]
// %1 = parameter {index = 1} : i32[1,3]
// %2 = broadcast_in_dim %1 {mapping = [0, 1]} : i32[2,3]
// %3 = remainder %0, %2 : i32[2,3]
// outputs %3

module @program {
  func.func @main(%arg0: tensor<2x3xi32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<1x3xi32>) -> (tensor<2x3xi32>) {
    %2 = "stablehlo.broadcast_in_dim"(%arg1) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<1x3xi32>) -> tensor<2x3xi32>
    %t0 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %t1 = "stablehlo.broadcast_in_dim"(%t0) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2x3xi32>
    %t2 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
    %t3 = "stablehlo.broadcast_in_dim"(%t2) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2x3xi32>
    %t4 = "stablehlo.compare"(%2, %t1) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi1>
    %t5 = "stablehlo.select"(%t4, %t3, %2) : (tensor<2x3xi1>, tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
    %t6 = "stablehlo.remainder"(%arg0, %t5) : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
    %3 = "stablehlo.select"(%t4, %arg0, %t6) : (tensor<2x3xi1>, tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
    "func.return"(%3) : (tensor<2x3xi32>) -> ()
  }
}
