// %0 = parameter {index = 0} : f32[2,5]
// %1 = iota {dim = 1} : i32[2,5]
// %2 = iota {dim = 0} : i64[2,5]
// %3 = arg_reduce %0, %1 {max = true, dim = 1} : f32[2], i32[2]
// %4 = get_result %3 {index = 1} : i32[2]
// %5 = arg_reduce %0, %2 {max = false, dim = 0} : f32[5], i64[5]
// %6 = get_result %5 {index = 1} : i64[5]
// outputs %3, %4, %5, %6

module @program {
  func.func @main(%arg0: tensor<2x5xf32>) -> (tensor<2xf32>, tensor<2xi32>, tensor<5xf32>, tensor<5xi64>) {
    %1 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x5xi32>
    %2 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2x5xi64>
    %t0 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
    %t1 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
    %3:2 = "stablehlo.reduce"(%arg0, %1, %t0, %t1) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<i32>, %a2: tensor<f32>, %a3: tensor<i32>):
      %r0 = "stablehlo.compare"(%a0, %a2) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r1 = "stablehlo.compare"(%a0, %a2) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r2 = "stablehlo.compare"(%a0, %a0) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r3 = "stablehlo.compare"(%a2, %a2) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r4 = "stablehlo.compare"(%a2, %a2) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r5 = "stablehlo.and"(%r2, %r4) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r6 = "stablehlo.and"(%r2, %r3) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r7 = "stablehlo.or"(%r0, %r5) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r8 = "stablehlo.or"(%r1, %r6) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r9 = "stablehlo.compare"(%a1, %a3) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %r10 = "stablehlo.and"(%r8, %r9) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r11 = "stablehlo.or"(%r7, %r10) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r12 = "stablehlo.select"(%r11, %a0, %a2) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r13 = "stablehlo.select"(%r11, %a1, %a3) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%r12, %r13) : (tensor<f32>, tensor<i32>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x5xf32>, tensor<2x5xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
    %t2 = "stablehlo.constant"() {value = dense<0x7F800000> : tensor<f32>} : () -> tensor<f32>
    %t3 = "stablehlo.constant"() {value = dense<9223372036854775807> : tensor<i64>} : () -> tensor<i64>
    %5:2 = "stablehlo.reduce"(%arg0, %2, %t2, %t3) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<i64>, %a2: tensor<f32>, %a3: tensor<i64>):
      %r0 = "stablehlo.compare"(%a0, %a2) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r1 = "stablehlo.compare"(%a0, %a2) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r2 = "stablehlo.compare"(%a0, %a0) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r3 = "stablehlo.compare"(%a2, %a2) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r4 = "stablehlo.compare"(%a2, %a2) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r5 = "stablehlo.and"(%r2, %r4) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r6 = "stablehlo.and"(%r2, %r3) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r7 = "stablehlo.or"(%r0, %r5) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r8 = "stablehlo.or"(%r1, %r6) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r9 = "stablehlo.compare"(%a1, %a3) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %r10 = "stablehlo.and"(%r8, %r9) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r11 = "stablehlo.or"(%r7, %r10) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %r12 = "stablehlo.select"(%r11, %a0, %a2) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r13 = "stablehlo.select"(%r11, %a1, %a3) : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
      "stablehlo.return"(%r12, %r13) : (tensor<f32>, tensor<i64>) -> ()
    }) {dimensions = array<i64: 0>} : (tensor<2x5xf32>, tensor<2x5xi64>, tensor<f32>, tensor<i64>) -> (tensor<5xf32>, tensor<5xi64>)
    "func.return"(%3#0, %3#1, %5#0, %5#1) : (tensor<2xf32>, tensor<2xi32>, tensor<5xf32>, tensor<5xi64>) -> ()
  }
}
