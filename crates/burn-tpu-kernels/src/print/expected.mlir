module @test attributes {stable_mosaic.version = 15 : i64} {
  "stable_mosaic.func.func"() ({
  ^bb0(%g0: i32, %r0: memref<1x8x128xf32, #tpu.memory_space<vmem>>, %r1: memref<8x128xf32, #tpu.memory_space<vmem>>, %r2: memref<8x128xf32, #tpu.memory_space<vmem>>):
    %0 = "stable_mosaic.arith.constant"() {value = 0 : i32} : () -> i32
    %1 = "stable_mosaic.arith.cmpi"(%g0, %0) {predicate = 0 : i64} : (i32, i32) -> i1
    "stable_mosaic.scf.if"(%1) ({
      %2 = "stable_mosaic.arith.constant"() {value = 0.5 : f32} : () -> f32
      %3 = "stable_mosaic.vector.broadcast"(%2) : (f32) -> vector<8x128xf32>
      %4 = "stable_mosaic.arith.constant"() {value = 0 : index} : () -> index
      "stable_mosaic.tpu.vector_store"(%3, %r2, %4, %4) {add = false, operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>} : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
      "stable_mosaic.scf.yield"() : () -> ()
    }, {
      "stable_mosaic.scf.yield"() : () -> ()
    }) : (i1) -> ()
    %5 = "stable_mosaic.arith.constant"() {value = 0 : index} : () -> index
    %6 = "stable_mosaic.vector.load"(%r0, %5, %5, %5) : (memref<1x8x128xf32, #tpu.memory_space<vmem>>, index, index, index) -> vector<1x8x128xf32>
    %7 = "stable_mosaic.vector.shape_cast"(%6) : (vector<1x8x128xf32>) -> vector<8x128xf32>
    %8 = "stable_mosaic.arith.constant"() {value = 0 : index} : () -> index
    "stable_mosaic.tpu.vector_store"(%7, %r1, %8, %8) {add = false, operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>} : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    "stable_mosaic.func.return"() : () -> ()
  }) {dimension_semantics = [#tpu.dimension_semantics<arbitrary>], iteration_bounds = array<i64: 4>, function_type = (i32, memref<1x8x128xf32, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>) -> (), scalar_prefetch = 0 : i64, scratch_operands = 1 : i64, tpu.core_type = #tpu.core_type<tc>, window_params = [{transform_indices = @window_0, window_bounds = array<i64: 1, 8, 128>}, {transform_indices = @window_1, window_bounds = array<i64: 8, 128>}], sym_name = "main"} : () -> ()
  "stable_mosaic.func.func"() ({
  ^bb0(%g0: i32):
    %0 = "stable_mosaic.arith.constant"() {value = 2 : i32} : () -> i32
    %1 = "stable_mosaic.arith.divsi"(%g0, %0) : (i32, i32) -> i32
    %2 = "stable_mosaic.arith.constant"() {value = 0 : i32} : () -> i32
    %3 = "stable_mosaic.arith.constant"() {value = 0 : i32} : () -> i32
    "stable_mosaic.func.return"(%1, %2, %3) : (i32, i32, i32) -> ()
  }) {function_type = (i32) -> (i32, i32, i32), sym_name = "window_0"} : () -> ()
  "stable_mosaic.func.func"() ({
  ^bb0(%g0: i32):
    %0 = "stable_mosaic.arith.constant"() {value = 0 : i32} : () -> i32
    "stable_mosaic.func.return"(%g0, %0) : (i32, i32) -> ()
  }) {function_type = (i32) -> (i32, i32), sym_name = "window_1"} : () -> ()
}
