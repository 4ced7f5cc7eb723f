// %0 = parameter {index = 0} : f32[3,7]
// %1 = parameter {index = 1} : f32[2,0]
// %2 = top_k %0 {k = 4} : f32[3,4], i32[3,4]
// %3 = get_result %2 {index = 1} : i32[3,4]
// %4 = top_k %1 {k = 0} : f32[2,0], i32[2,0]
// outputs %2, %3, %4

module @program {
  func.func @main(%arg0: tensor<3x7xf32>, %arg1: tensor<2x0xf32>) -> (tensor<3x4xf32>, tensor<3x4xi32>, tensor<2x0xf32>) {
    %t0 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<3x7xf32>} : () -> tensor<3x7xf32>
    %t1 = "stablehlo.constant"() {value = dense<0x7FC00000> : tensor<3x7xf32>} : () -> tensor<3x7xf32>
    %t2 = "stablehlo.compare"(%arg0, %t0) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<3x7xf32>, tensor<3x7xf32>) -> tensor<3x7xi1>
    %t3 = "stablehlo.compare"(%arg0, %arg0) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<3x7xf32>, tensor<3x7xf32>) -> tensor<3x7xi1>
    %t4 = "stablehlo.select"(%t2, %t0, %arg0) : (tensor<3x7xi1>, tensor<3x7xf32>, tensor<3x7xf32>) -> tensor<3x7xf32>
    %t5 = "stablehlo.select"(%t3, %t1, %t4) : (tensor<3x7xi1>, tensor<3x7xf32>, tensor<3x7xf32>) -> tensor<3x7xf32>
    %2:2 = "chlo.top_k"(%t5) {k = 4 : i64} : (tensor<3x7xf32>) -> (tensor<3x4xf32>, tensor<3x4xi32>)
    %t6 = "stablehlo.constant"() {value = dense<> : tensor<2x0xf32>} : () -> tensor<2x0xf32>
    %t7 = "stablehlo.constant"() {value = dense<> : tensor<2x0xf32>} : () -> tensor<2x0xf32>
    %t8 = "stablehlo.compare"(%arg1, %t6) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x0xf32>, tensor<2x0xf32>) -> tensor<2x0xi1>
    %t9 = "stablehlo.compare"(%arg1, %arg1) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x0xf32>, tensor<2x0xf32>) -> tensor<2x0xi1>
    %t10 = "stablehlo.select"(%t8, %t6, %arg1) : (tensor<2x0xi1>, tensor<2x0xf32>, tensor<2x0xf32>) -> tensor<2x0xf32>
    %t11 = "stablehlo.select"(%t9, %t7, %t10) : (tensor<2x0xi1>, tensor<2x0xf32>, tensor<2x0xf32>) -> tensor<2x0xf32>
    %4:2 = "chlo.top_k"(%t11) {k = 0 : i64} : (tensor<2x0xf32>) -> (tensor<2x0xf32>, tensor<2x0xi32>)
    "func.return"(%2#0, %2#1, %4#0) : (tensor<3x4xf32>, tensor<3x4xi32>, tensor<2x0xf32>) -> ()
  }
}
