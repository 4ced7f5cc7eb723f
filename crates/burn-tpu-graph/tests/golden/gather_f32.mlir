// %0 = parameter {index = 0} : f32[5,4]
// %1 = parameter {index = 1} : i32[3]
// %2 = parameter {index = 2} : i64[5,2]
// %3 = parameter {index = 3} : i32[3,2]
// %4 = gather %0, %1 {offset_dims = [1], collapsed_slice_dims = [0], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0], index_vector_dim = 1, slice_sizes = [1, 4]} : f32[3,4]
// %5 = gather %0, %2 {offset_dims = [], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2, slice_sizes = [1, 1]} : f32[5,2]
// %6 = gather %0, %3 {offset_dims = [0, 2], collapsed_slice_dims = [], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0, 1], index_vector_dim = 1, slice_sizes = [2, 3]} : f32[2,3,3]
// outputs %4, %5, %6

module @program {
  func.func @main(%arg0: tensor<5x4xf32>, %arg1: tensor<3xi32>, %arg2: tensor<5x2xi64>, %arg3: tensor<3x2xi32>) -> (tensor<3x4xf32>, tensor<5x2xf32>, tensor<2x3x3xf32>) {
    %4 = "stablehlo.gather"(%arg0, %arg1) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>, indices_are_sorted = false} : (tensor<5x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
    %5 = "stablehlo.gather"(%arg0, %arg2) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>, indices_are_sorted = false} : (tensor<5x4xf32>, tensor<5x2xi64>) -> tensor<5x2xf32>
    %6 = "stablehlo.gather"(%arg0, %arg3) {dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 2, 3>, indices_are_sorted = false} : (tensor<5x4xf32>, tensor<3x2xi32>) -> tensor<2x3x3xf32>
    "func.return"(%4, %5, %6) : (tensor<3x4xf32>, tensor<5x2xf32>, tensor<2x3x3xf32>) -> ()
  }
}
