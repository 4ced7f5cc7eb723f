// %0 = parameter {index = 0} : f32[8,128]
// %1 = custom_call %0, %0 {name = exp-and-add, form = kernel(tpu_custom_call fd19722e2738492925037899fabfa26a5f1d7d2e54727fdcdfc4a661aeab5126 (f32[8,128], f32[8,128]) -> (f32[8,128]), cost 1024 1024 12288), plain = (%0 = parameter {index = 0} : f32[8,128]; %1 = parameter {index = 1} : f32[8,128]; %2 = exponential %0 : f32[8,128]; %3 = add %2, %1 : f32[8,128]; outputs %3)} : f32[8,128]
// outputs %1

module @program {
  func.func @main(%arg0: tensor<8x128xf32>) -> (tensor<8x128xf32>) {
    %1 = "func.call"(%arg0, %arg0) {callee = @exp_and_add_6ce6f8ab0dde} : (tensor<8x128xf32>, tensor<8x128xf32>) -> tensor<8x128xf32>
    "func.return"(%1) : (tensor<8x128xf32>) -> ()
  }
  func.func private @exp_and_add_6ce6f8ab0dde(%arg0: tensor<8x128xf32>, %arg1: tensor<8x128xf32>) -> (tensor<8x128xf32>) {
    %2 = "stablehlo.exponential"(%arg0) : (tensor<8x128xf32>) -> tensor<8x128xf32>
    %3 = "stablehlo.add"(%2, %arg1) : (tensor<8x128xf32>, tensor<8x128xf32>) -> tensor<8x128xf32>
    "func.return"(%3) : (tensor<8x128xf32>) -> ()
  }
}
