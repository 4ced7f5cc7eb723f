// %0 = parameter {index = 0} : f32[4]
// %1 = sharding_constraint %0 {sharding = [{0}]} : f32[4]
// outputs %1

module @program {
  func.func @main(%arg0: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<4xf32>) {
    "func.return"(%arg0) : (tensor<4xf32>) -> ()
  }
}
