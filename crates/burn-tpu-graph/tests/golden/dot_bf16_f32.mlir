// %0 = parameter {index = 0} : bf16[2,3]
// %1 = parameter {index = 1} : bf16[3,4]
// %2 = parameter {index = 2} : bf16[5,2,3]
// %3 = parameter {index = 3} : bf16[3,5,4]
// %4 = parameter {index = 4} : bf16[4]
// %5 = parameter {index = 5} : bf16[4]
// %6 = parameter {index = 6} : bf16[2,0]
// %7 = parameter {index = 7} : bf16[0,3]
// %8 = dot_general %0, %1 {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} : f32[2,4]
// %9 = dot_general %2, %3 {lhs_batch = [0], rhs_batch = [1], lhs_contract = [2], rhs_contract = [0]} : f32[5,2,4]
// %10 = dot_general %4, %5 {lhs_batch = [], rhs_batch = [], lhs_contract = [0], rhs_contract = [0]} : f32[]
// %11 = dot_general %4, %5 {lhs_batch = [], rhs_batch = [], lhs_contract = [], rhs_contract = []} : f32[4,4]
// %12 = dot_general %6, %7 {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} : f32[2,3]
// outputs %8, %9, %10, %11, %12

module @program {
  func.func @main(%arg0: tensor<2x3xbf16>, %arg1: tensor<3x4xbf16>, %arg2: tensor<5x2x3xbf16>, %arg3: tensor<3x5x4xbf16>, %arg4: tensor<4xbf16>, %arg5: tensor<4xbf16>, %arg6: tensor<2x0xbf16>, %arg7: tensor<0x3xbf16>) -> (tensor<2x4xf32>, tensor<5x2x4xf32>, tensor<f32>, tensor<4x4xf32>, tensor<2x3xf32>) {
    %8 = "stablehlo.dot_general"(%arg0, %arg1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>} : (tensor<2x3xbf16>, tensor<3x4xbf16>) -> tensor<2x4xf32>
    %9 = "stablehlo.dot_general"(%arg2, %arg3) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [1], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>} : (tensor<5x2x3xbf16>, tensor<3x5x4xbf16>) -> tensor<5x2x4xf32>
    %10 = "stablehlo.dot_general"(%arg4, %arg5) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>} : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<f32>
    %11 = "stablehlo.dot_general"(%arg4, %arg5) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [], rhs_contracting_dimensions = []>} : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<4x4xf32>
    %12 = "stablehlo.dot_general"(%arg6, %arg7) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>} : (tensor<2x0xbf16>, tensor<0x3xbf16>) -> tensor<2x3xf32>
    "func.return"(%8, %9, %10, %11, %12) : (tensor<2x4xf32>, tensor<5x2x4xf32>, tensor<f32>, tensor<4x4xf32>, tensor<2x3xf32>) -> ()
  }
}
