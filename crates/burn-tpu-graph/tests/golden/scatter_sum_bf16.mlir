// %0 = parameter {index = 0} : bf16[5,4]
// %1 = parameter {index = 1} : i32[3]
// %2 = parameter {index = 2} : i64[5,2]
// %3 = parameter {index = 3} : bf16[3,4]
// %4 = parameter {index = 4} : bf16[5,2]
// %5 = scatter %0, %1, %3 {update_window_dims = [1], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1, mode = Combine(Sum)} : bf16[5,4]
// %6 = scatter %0, %2, %4 {update_window_dims = [], inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2, mode = Combine(Sum)} : bf16[5,4]
// outputs %5, %6

module @program {
  func.func @main(%arg0: tensor<5x4xbf16> {tf.aliasing_output = 0 : i32}, %arg1: tensor<3xi32>, %arg2: tensor<5x2xi64>, %arg3: tensor<3x4xbf16>, %arg4: tensor<5x2xbf16>) -> (tensor<5x4xbf16>, tensor<5x4xbf16>) {
    %5 = "stablehlo.scatter"(%arg0, %arg1, %arg3) ({
    ^bb0(%a0: tensor<bf16>, %a1: tensor<bf16>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
      "stablehlo.return"(%r0) : (tensor<bf16>) -> ()
    }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : (tensor<5x4xbf16>, tensor<3xi32>, tensor<3x4xbf16>) -> tensor<5x4xbf16>
    %6 = "stablehlo.scatter"(%arg0, %arg2, %arg4) ({
    ^bb0(%a0: tensor<bf16>, %a1: tensor<bf16>):
      %r0 = "stablehlo.add"(%a0, %a1) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
      "stablehlo.return"(%r0) : (tensor<bf16>) -> ()
    }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false} : (tensor<5x4xbf16>, tensor<5x2xi64>, tensor<5x2xbf16>) -> tensor<5x4xbf16>
    "func.return"(%5, %6) : (tensor<5x4xbf16>, tensor<5x4xbf16>) -> ()
  }
}
