// %0 = parameter {index = 0} : i32[2,5]
// %1 = parameter {index = 1} : i32[0]
// %2 = iota {dim = 1} : i32[2,5]
// %3 = sort %0, %2 {dim = 1, descending = false} : i32[2,5], i32[2,5]
// %4 = get_result %3 {index = 1} : i32[2,5]
// %5 = sort %0 {dim = 0, descending = false} : i32[2,5]
// %6 = sort %1 {dim = 0, descending = false} : i32[0]
// outputs %3, %4, %5, %6

module @program {
  func.func @main(%arg0: tensor<2x5xi32>, %arg1: tensor<0xi32>) -> (tensor<2x5xi32>, tensor<2x5xi32>, tensor<2x5xi32>, tensor<0xi32>) {
    %2 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x5xi32>
    %3:2 = "stablehlo.sort"(%arg0, %2) ({
    ^bb0(%a0: tensor<i32>, %a1: tensor<i32>, %a2: tensor<i32>, %a3: tensor<i32>):
      %r0 = "stablehlo.compare"(%a0, %a1) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%r0) : (tensor<i1>) -> ()
    }) {dimension = 1 : i64, is_stable = true} : (tensor<2x5xi32>, tensor<2x5xi32>) -> (tensor<2x5xi32>, tensor<2x5xi32>)
    %5 = "stablehlo.sort"(%arg0) ({
    ^bb0(%a0: tensor<i32>, %a1: tensor<i32>):
      %r0 = "stablehlo.compare"(%a0, %a1) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%r0) : (tensor<i1>) -> ()
    }) {dimension = 0 : i64, is_stable = true} : (tensor<2x5xi32>) -> tensor<2x5xi32>
    %6 = "stablehlo.sort"(%arg1) ({
    ^bb0(%a0: tensor<i32>, %a1: tensor<i32>):
      %r0 = "stablehlo.compare"(%a0, %a1) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%r0) : (tensor<i1>) -> ()
    }) {dimension = 0 : i64, is_stable = true} : (tensor<0xi32>) -> tensor<0xi32>
    "func.return"(%3#0, %3#1, %5, %6) : (tensor<2x5xi32>, tensor<2x5xi32>, tensor<2x5xi32>, tensor<0xi32>) -> ()
  }
}
