// %0 = parameter {index = 0} : f32[2,5]
// %1 = parameter {index = 1} : f32[0]
// %2 = iota {dim = 1} : i32[2,5]
// %3 = sort %0, %2 {dim = 1, descending = true} : f32[2,5], i32[2,5]
// %4 = get_result %3 {index = 1} : i32[2,5]
// %5 = sort %0 {dim = 0, descending = true} : f32[2,5]
// %6 = sort %1 {dim = 0, descending = true} : f32[0]
// outputs %3, %4, %5, %6

module @program {
  func.func @main(%arg0: tensor<2x5xf32>, %arg1: tensor<0xf32>) -> (tensor<2x5xf32>, tensor<2x5xi32>, tensor<2x5xf32>, tensor<0xf32>) {
    %2 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x5xi32>
    %3:2 = "stablehlo.sort"(%arg0, %2) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>, %a2: tensor<i32>, %a3: tensor<i32>):
      %r0 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
      %r1 = "stablehlo.constant"() {value = dense<0x7FC00000> : tensor<f32>} : () -> tensor<f32>
      %r2 = "stablehlo.compare"(%a0, %r0) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r3 = "stablehlo.compare"(%a0, %a0) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r4 = "stablehlo.select"(%r2, %r0, %a0) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r5 = "stablehlo.select"(%r3, %r1, %r4) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r6 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
      %r7 = "stablehlo.constant"() {value = dense<0x7FC00000> : tensor<f32>} : () -> tensor<f32>
      %r8 = "stablehlo.compare"(%a1, %r6) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r9 = "stablehlo.compare"(%a1, %a1) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r10 = "stablehlo.select"(%r8, %r6, %a1) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r11 = "stablehlo.select"(%r9, %r7, %r10) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r12 = "stablehlo.compare"(%r5, %r11) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type TOTALORDER>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%r12) : (tensor<i1>) -> ()
    }) {dimension = 1 : i64, is_stable = true} : (tensor<2x5xf32>, tensor<2x5xi32>) -> (tensor<2x5xf32>, tensor<2x5xi32>)
    %5 = "stablehlo.sort"(%arg0) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
      %r1 = "stablehlo.constant"() {value = dense<0x7FC00000> : tensor<f32>} : () -> tensor<f32>
      %r2 = "stablehlo.compare"(%a0, %r0) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r3 = "stablehlo.compare"(%a0, %a0) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r4 = "stablehlo.select"(%r2, %r0, %a0) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r5 = "stablehlo.select"(%r3, %r1, %r4) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r6 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
      %r7 = "stablehlo.constant"() {value = dense<0x7FC00000> : tensor<f32>} : () -> tensor<f32>
      %r8 = "stablehlo.compare"(%a1, %r6) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r9 = "stablehlo.compare"(%a1, %a1) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r10 = "stablehlo.select"(%r8, %r6, %a1) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r11 = "stablehlo.select"(%r9, %r7, %r10) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r12 = "stablehlo.compare"(%r5, %r11) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type TOTALORDER>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%r12) : (tensor<i1>) -> ()
    }) {dimension = 0 : i64, is_stable = true} : (tensor<2x5xf32>) -> tensor<2x5xf32>
    %6 = "stablehlo.sort"(%arg1) ({
    ^bb0(%a0: tensor<f32>, %a1: tensor<f32>):
      %r0 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
      %r1 = "stablehlo.constant"() {value = dense<0x7FC00000> : tensor<f32>} : () -> tensor<f32>
      %r2 = "stablehlo.compare"(%a0, %r0) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r3 = "stablehlo.compare"(%a0, %a0) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r4 = "stablehlo.select"(%r2, %r0, %a0) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r5 = "stablehlo.select"(%r3, %r1, %r4) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r6 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
      %r7 = "stablehlo.constant"() {value = dense<0x7FC00000> : tensor<f32>} : () -> tensor<f32>
      %r8 = "stablehlo.compare"(%a1, %r6) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r9 = "stablehlo.compare"(%a1, %a1) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r10 = "stablehlo.select"(%r8, %r6, %a1) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r11 = "stablehlo.select"(%r9, %r7, %r10) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %r12 = "stablehlo.compare"(%r5, %r11) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type TOTALORDER>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%r12) : (tensor<i1>) -> ()
    }) {dimension = 0 : i64, is_stable = true} : (tensor<0xf32>) -> tensor<0xf32>
    "func.return"(%3#0, %3#1, %5, %6) : (tensor<2x5xf32>, tensor<2x5xi32>, tensor<2x5xf32>, tensor<0xf32>) -> ()
  }
}
