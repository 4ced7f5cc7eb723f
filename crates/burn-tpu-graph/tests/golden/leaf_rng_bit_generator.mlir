// %0 = parameter {index = 0} : ui64[2]
// %1 = rng_bit_generator %0 : ui64[2], ui32[3,5]
// %2 = get_result %1 {index = 1} : ui32[3,5]
// %3 = rng_bit_generator %1 : ui64[2], ui64[4]
// %4 = get_result %3 {index = 1} : ui64[4]
// %5 = rng_bit_generator %3 : ui64[2], ui32[0]
// %6 = get_result %5 {index = 1} : ui32[0]
// %7 = rng_bit_generator %5 : ui64[2], ui32[]
// %8 = get_result %7 {index = 1} : ui32[]
// outputs %7, %2, %4, %6, %8

module @program {
  func.func @main(%arg0: tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>, tensor<4xui64>, tensor<0xui32>, tensor<ui32>) {
    %1:2 = "func.call"(%arg0) {callee = @threefry_3_5} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>)
    %3:2 = "stablehlo.rng_bit_generator"(%1#0) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui64>)
    %5:2 = "stablehlo.rng_bit_generator"(%3#0) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<0xui32>)
    %7:2 = "func.call"(%5#0) {callee = @threefry} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<ui32>)
    "func.return"(%7#0, %1#1, %3#1, %5#1, %7#1) : (tensor<2xui64>, tensor<3x5xui32>, tensor<4xui64>, tensor<0xui32>, tensor<ui32>) -> ()
  }
  func.func private @threefry_3_5(%arg0: tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>) {
    %1 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
    %2 = "stablehlo.reshape"(%1) : (tensor<1xui64>) -> tensor<ui64>
    %3 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
    %4 = "stablehlo.reshape"(%3) : (tensor<1xui64>) -> tensor<ui64>
    %5 = "stablehlo.constant"() {value = dense<4294967295> : tensor<ui64>} : () -> tensor<ui64>
    %6 = "stablehlo.and"(%2, %5) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %7 = "stablehlo.constant"() {value = dense<32> : tensor<ui64>} : () -> tensor<ui64>
    %8 = "stablehlo.shift_right_logical"(%2, %7) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %9 = "stablehlo.convert"(%6) : (tensor<ui64>) -> tensor<ui32>
    %10 = "stablehlo.convert"(%8) : (tensor<ui64>) -> tensor<ui32>
    %11 = "stablehlo.constant"() {value = dense<4294967295> : tensor<ui64>} : () -> tensor<ui64>
    %12 = "stablehlo.and"(%4, %11) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %13 = "stablehlo.constant"() {value = dense<32> : tensor<ui64>} : () -> tensor<ui64>
    %14 = "stablehlo.shift_right_logical"(%4, %13) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %15 = "stablehlo.convert"(%12) : (tensor<ui64>) -> tensor<ui32>
    %16 = "stablehlo.convert"(%14) : (tensor<ui64>) -> tensor<ui32>
    %17 = "stablehlo.constant"() {value = dense<0> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %18 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<3x5xui32>
    %19 = "stablehlo.constant"() {value = dense<3> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %20 = "stablehlo.multiply"(%18, %19) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %21 = "stablehlo.add"(%17, %20) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %22 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<3x5xui32>
    %23 = "stablehlo.constant"() {value = dense<1> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %24 = "stablehlo.shift_right_logical"(%22, %23) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %25 = "stablehlo.constant"() {value = dense<1> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %26 = "stablehlo.multiply"(%24, %25) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %27 = "stablehlo.add"(%21, %26) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %28 = "stablehlo.broadcast_in_dim"(%15) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %29 = "stablehlo.add"(%27, %28) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %30 = "stablehlo.compare"(%29, %27) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xi1>
    %31 = "stablehlo.convert"(%30) : (tensor<3x5xi1>) -> tensor<3x5xui32>
    %32 = "stablehlo.broadcast_in_dim"(%16) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %33 = "stablehlo.add"(%31, %32) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %34 = "stablehlo.xor"(%9, %10) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %35 = "stablehlo.constant"() {value = dense<466688986> : tensor<ui32>} : () -> tensor<ui32>
    %36 = "stablehlo.xor"(%34, %35) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %37 = "stablehlo.broadcast_in_dim"(%9) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %38 = "stablehlo.add"(%29, %37) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %39 = "stablehlo.broadcast_in_dim"(%10) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %40 = "stablehlo.add"(%33, %39) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %41 = "stablehlo.add"(%38, %40) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %42 = "stablehlo.constant"() {value = dense<13> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %43 = "stablehlo.shift_left"(%40, %42) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %44 = "stablehlo.constant"() {value = dense<19> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %45 = "stablehlo.shift_right_logical"(%40, %44) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %46 = "stablehlo.or"(%43, %45) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %47 = "stablehlo.xor"(%46, %41) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %48 = "stablehlo.add"(%41, %47) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %49 = "stablehlo.constant"() {value = dense<15> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %50 = "stablehlo.shift_left"(%47, %49) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %51 = "stablehlo.constant"() {value = dense<17> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %52 = "stablehlo.shift_right_logical"(%47, %51) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %53 = "stablehlo.or"(%50, %52) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %54 = "stablehlo.xor"(%53, %48) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %55 = "stablehlo.add"(%48, %54) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %56 = "stablehlo.constant"() {value = dense<26> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %57 = "stablehlo.shift_left"(%54, %56) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %58 = "stablehlo.constant"() {value = dense<6> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %59 = "stablehlo.shift_right_logical"(%54, %58) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %60 = "stablehlo.or"(%57, %59) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %61 = "stablehlo.xor"(%60, %55) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %62 = "stablehlo.add"(%55, %61) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %63 = "stablehlo.constant"() {value = dense<6> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %64 = "stablehlo.shift_left"(%61, %63) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %65 = "stablehlo.constant"() {value = dense<26> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %66 = "stablehlo.shift_right_logical"(%61, %65) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %67 = "stablehlo.or"(%64, %66) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %68 = "stablehlo.xor"(%67, %62) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %69 = "stablehlo.broadcast_in_dim"(%10) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %70 = "stablehlo.add"(%62, %69) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %71 = "stablehlo.constant"() {value = dense<1> : tensor<ui32>} : () -> tensor<ui32>
    %72 = "stablehlo.add"(%36, %71) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %73 = "stablehlo.broadcast_in_dim"(%72) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %74 = "stablehlo.add"(%68, %73) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %75 = "stablehlo.add"(%70, %74) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %76 = "stablehlo.constant"() {value = dense<17> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %77 = "stablehlo.shift_left"(%74, %76) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %78 = "stablehlo.constant"() {value = dense<15> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %79 = "stablehlo.shift_right_logical"(%74, %78) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %80 = "stablehlo.or"(%77, %79) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %81 = "stablehlo.xor"(%80, %75) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %82 = "stablehlo.add"(%75, %81) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %83 = "stablehlo.constant"() {value = dense<29> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %84 = "stablehlo.shift_left"(%81, %83) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %85 = "stablehlo.constant"() {value = dense<3> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %86 = "stablehlo.shift_right_logical"(%81, %85) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %87 = "stablehlo.or"(%84, %86) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %88 = "stablehlo.xor"(%87, %82) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %89 = "stablehlo.add"(%82, %88) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %90 = "stablehlo.constant"() {value = dense<16> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %91 = "stablehlo.shift_left"(%88, %90) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %92 = "stablehlo.constant"() {value = dense<16> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %93 = "stablehlo.shift_right_logical"(%88, %92) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %94 = "stablehlo.or"(%91, %93) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %95 = "stablehlo.xor"(%94, %89) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %96 = "stablehlo.add"(%89, %95) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %97 = "stablehlo.constant"() {value = dense<24> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %98 = "stablehlo.shift_left"(%95, %97) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %99 = "stablehlo.constant"() {value = dense<8> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %100 = "stablehlo.shift_right_logical"(%95, %99) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %101 = "stablehlo.or"(%98, %100) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %102 = "stablehlo.xor"(%101, %96) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %103 = "stablehlo.broadcast_in_dim"(%36) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %104 = "stablehlo.add"(%96, %103) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %105 = "stablehlo.constant"() {value = dense<2> : tensor<ui32>} : () -> tensor<ui32>
    %106 = "stablehlo.add"(%9, %105) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %107 = "stablehlo.broadcast_in_dim"(%106) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %108 = "stablehlo.add"(%102, %107) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %109 = "stablehlo.add"(%104, %108) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %110 = "stablehlo.constant"() {value = dense<13> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %111 = "stablehlo.shift_left"(%108, %110) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %112 = "stablehlo.constant"() {value = dense<19> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %113 = "stablehlo.shift_right_logical"(%108, %112) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %114 = "stablehlo.or"(%111, %113) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %115 = "stablehlo.xor"(%114, %109) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %116 = "stablehlo.add"(%109, %115) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %117 = "stablehlo.constant"() {value = dense<15> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %118 = "stablehlo.shift_left"(%115, %117) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %119 = "stablehlo.constant"() {value = dense<17> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %120 = "stablehlo.shift_right_logical"(%115, %119) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %121 = "stablehlo.or"(%118, %120) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %122 = "stablehlo.xor"(%121, %116) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %123 = "stablehlo.add"(%116, %122) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %124 = "stablehlo.constant"() {value = dense<26> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %125 = "stablehlo.shift_left"(%122, %124) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %126 = "stablehlo.constant"() {value = dense<6> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %127 = "stablehlo.shift_right_logical"(%122, %126) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %128 = "stablehlo.or"(%125, %127) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %129 = "stablehlo.xor"(%128, %123) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %130 = "stablehlo.add"(%123, %129) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %131 = "stablehlo.constant"() {value = dense<6> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %132 = "stablehlo.shift_left"(%129, %131) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %133 = "stablehlo.constant"() {value = dense<26> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %134 = "stablehlo.shift_right_logical"(%129, %133) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %135 = "stablehlo.or"(%132, %134) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %136 = "stablehlo.xor"(%135, %130) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %137 = "stablehlo.broadcast_in_dim"(%9) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %138 = "stablehlo.add"(%130, %137) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %139 = "stablehlo.constant"() {value = dense<3> : tensor<ui32>} : () -> tensor<ui32>
    %140 = "stablehlo.add"(%10, %139) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %141 = "stablehlo.broadcast_in_dim"(%140) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %142 = "stablehlo.add"(%136, %141) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %143 = "stablehlo.add"(%138, %142) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %144 = "stablehlo.constant"() {value = dense<17> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %145 = "stablehlo.shift_left"(%142, %144) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %146 = "stablehlo.constant"() {value = dense<15> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %147 = "stablehlo.shift_right_logical"(%142, %146) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %148 = "stablehlo.or"(%145, %147) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %149 = "stablehlo.xor"(%148, %143) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %150 = "stablehlo.add"(%143, %149) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %151 = "stablehlo.constant"() {value = dense<29> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %152 = "stablehlo.shift_left"(%149, %151) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %153 = "stablehlo.constant"() {value = dense<3> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %154 = "stablehlo.shift_right_logical"(%149, %153) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %155 = "stablehlo.or"(%152, %154) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %156 = "stablehlo.xor"(%155, %150) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %157 = "stablehlo.add"(%150, %156) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %158 = "stablehlo.constant"() {value = dense<16> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %159 = "stablehlo.shift_left"(%156, %158) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %160 = "stablehlo.constant"() {value = dense<16> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %161 = "stablehlo.shift_right_logical"(%156, %160) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %162 = "stablehlo.or"(%159, %161) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %163 = "stablehlo.xor"(%162, %157) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %164 = "stablehlo.add"(%157, %163) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %165 = "stablehlo.constant"() {value = dense<24> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %166 = "stablehlo.shift_left"(%163, %165) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %167 = "stablehlo.constant"() {value = dense<8> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %168 = "stablehlo.shift_right_logical"(%163, %167) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %169 = "stablehlo.or"(%166, %168) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %170 = "stablehlo.xor"(%169, %164) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %171 = "stablehlo.broadcast_in_dim"(%10) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %172 = "stablehlo.add"(%164, %171) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %173 = "stablehlo.constant"() {value = dense<4> : tensor<ui32>} : () -> tensor<ui32>
    %174 = "stablehlo.add"(%36, %173) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %175 = "stablehlo.broadcast_in_dim"(%174) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %176 = "stablehlo.add"(%170, %175) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %177 = "stablehlo.add"(%172, %176) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %178 = "stablehlo.constant"() {value = dense<13> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %179 = "stablehlo.shift_left"(%176, %178) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %180 = "stablehlo.constant"() {value = dense<19> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %181 = "stablehlo.shift_right_logical"(%176, %180) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %182 = "stablehlo.or"(%179, %181) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %183 = "stablehlo.xor"(%182, %177) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %184 = "stablehlo.add"(%177, %183) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %185 = "stablehlo.constant"() {value = dense<15> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %186 = "stablehlo.shift_left"(%183, %185) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %187 = "stablehlo.constant"() {value = dense<17> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %188 = "stablehlo.shift_right_logical"(%183, %187) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %189 = "stablehlo.or"(%186, %188) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %190 = "stablehlo.xor"(%189, %184) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %191 = "stablehlo.add"(%184, %190) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %192 = "stablehlo.constant"() {value = dense<26> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %193 = "stablehlo.shift_left"(%190, %192) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %194 = "stablehlo.constant"() {value = dense<6> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %195 = "stablehlo.shift_right_logical"(%190, %194) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %196 = "stablehlo.or"(%193, %195) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %197 = "stablehlo.xor"(%196, %191) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %198 = "stablehlo.add"(%191, %197) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %199 = "stablehlo.constant"() {value = dense<6> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %200 = "stablehlo.shift_left"(%197, %199) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %201 = "stablehlo.constant"() {value = dense<26> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %202 = "stablehlo.shift_right_logical"(%197, %201) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %203 = "stablehlo.or"(%200, %202) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %204 = "stablehlo.xor"(%203, %198) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %205 = "stablehlo.broadcast_in_dim"(%36) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %206 = "stablehlo.add"(%198, %205) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %207 = "stablehlo.constant"() {value = dense<5> : tensor<ui32>} : () -> tensor<ui32>
    %208 = "stablehlo.add"(%9, %207) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %209 = "stablehlo.broadcast_in_dim"(%208) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<3x5xui32>
    %210 = "stablehlo.add"(%204, %209) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %211 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<3x5xui32>
    %212 = "stablehlo.constant"() {value = dense<1> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %213 = "stablehlo.and"(%211, %212) : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %214 = "stablehlo.constant"() {value = dense<0> : tensor<3x5xui32>} : () -> tensor<3x5xui32>
    %215 = "stablehlo.compare"(%213, %214) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xi1>
    %216 = "stablehlo.select"(%215, %206, %210) : (tensor<3x5xi1>, tensor<3x5xui32>, tensor<3x5xui32>) -> tensor<3x5xui32>
    %217 = "stablehlo.constant"() {value = dense<9> : tensor<ui64>} : () -> tensor<ui64>
    %218 = "stablehlo.add"(%4, %217) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %219 = "stablehlo.reshape"(%2) : (tensor<ui64>) -> tensor<1xui64>
    %220 = "stablehlo.reshape"(%218) : (tensor<ui64>) -> tensor<1xui64>
    %221 = "stablehlo.concatenate"(%219, %220) {dimension = 0 : i64} : (tensor<1xui64>, tensor<1xui64>) -> tensor<2xui64>
    "func.return"(%221, %216) : (tensor<2xui64>, tensor<3x5xui32>) -> ()
  }
  func.func private @threefry(%arg0: tensor<2xui64>) -> (tensor<2xui64>, tensor<ui32>) {
    %1 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
    %2 = "stablehlo.reshape"(%1) : (tensor<1xui64>) -> tensor<ui64>
    %3 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xui64>) -> tensor<1xui64>
    %4 = "stablehlo.reshape"(%3) : (tensor<1xui64>) -> tensor<ui64>
    %5 = "stablehlo.constant"() {value = dense<4294967295> : tensor<ui64>} : () -> tensor<ui64>
    %6 = "stablehlo.and"(%2, %5) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %7 = "stablehlo.constant"() {value = dense<32> : tensor<ui64>} : () -> tensor<ui64>
    %8 = "stablehlo.shift_right_logical"(%2, %7) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %9 = "stablehlo.convert"(%6) : (tensor<ui64>) -> tensor<ui32>
    %10 = "stablehlo.convert"(%8) : (tensor<ui64>) -> tensor<ui32>
    %11 = "stablehlo.constant"() {value = dense<4294967295> : tensor<ui64>} : () -> tensor<ui64>
    %12 = "stablehlo.and"(%4, %11) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %13 = "stablehlo.constant"() {value = dense<32> : tensor<ui64>} : () -> tensor<ui64>
    %14 = "stablehlo.shift_right_logical"(%4, %13) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %15 = "stablehlo.convert"(%12) : (tensor<ui64>) -> tensor<ui32>
    %16 = "stablehlo.convert"(%14) : (tensor<ui64>) -> tensor<ui32>
    %17 = "stablehlo.constant"() {value = dense<0> : tensor<ui32>} : () -> tensor<ui32>
    %18 = "stablehlo.add"(%17, %15) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %19 = "stablehlo.compare"(%18, %17) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type UNSIGNED>} : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %20 = "stablehlo.convert"(%19) : (tensor<i1>) -> tensor<ui32>
    %21 = "stablehlo.add"(%20, %16) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %22 = "stablehlo.xor"(%9, %10) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %23 = "stablehlo.constant"() {value = dense<466688986> : tensor<ui32>} : () -> tensor<ui32>
    %24 = "stablehlo.xor"(%22, %23) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %25 = "stablehlo.add"(%18, %9) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %26 = "stablehlo.add"(%21, %10) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %27 = "stablehlo.add"(%25, %26) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %28 = "stablehlo.constant"() {value = dense<13> : tensor<ui32>} : () -> tensor<ui32>
    %29 = "stablehlo.shift_left"(%26, %28) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %30 = "stablehlo.constant"() {value = dense<19> : tensor<ui32>} : () -> tensor<ui32>
    %31 = "stablehlo.shift_right_logical"(%26, %30) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %32 = "stablehlo.or"(%29, %31) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %33 = "stablehlo.xor"(%32, %27) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %34 = "stablehlo.add"(%27, %33) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %35 = "stablehlo.constant"() {value = dense<15> : tensor<ui32>} : () -> tensor<ui32>
    %36 = "stablehlo.shift_left"(%33, %35) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %37 = "stablehlo.constant"() {value = dense<17> : tensor<ui32>} : () -> tensor<ui32>
    %38 = "stablehlo.shift_right_logical"(%33, %37) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %39 = "stablehlo.or"(%36, %38) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %40 = "stablehlo.xor"(%39, %34) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %41 = "stablehlo.add"(%34, %40) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %42 = "stablehlo.constant"() {value = dense<26> : tensor<ui32>} : () -> tensor<ui32>
    %43 = "stablehlo.shift_left"(%40, %42) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %44 = "stablehlo.constant"() {value = dense<6> : tensor<ui32>} : () -> tensor<ui32>
    %45 = "stablehlo.shift_right_logical"(%40, %44) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %46 = "stablehlo.or"(%43, %45) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %47 = "stablehlo.xor"(%46, %41) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %48 = "stablehlo.add"(%41, %47) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %49 = "stablehlo.constant"() {value = dense<6> : tensor<ui32>} : () -> tensor<ui32>
    %50 = "stablehlo.shift_left"(%47, %49) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %51 = "stablehlo.constant"() {value = dense<26> : tensor<ui32>} : () -> tensor<ui32>
    %52 = "stablehlo.shift_right_logical"(%47, %51) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %53 = "stablehlo.or"(%50, %52) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %54 = "stablehlo.xor"(%53, %48) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %55 = "stablehlo.add"(%48, %10) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %56 = "stablehlo.constant"() {value = dense<1> : tensor<ui32>} : () -> tensor<ui32>
    %57 = "stablehlo.add"(%24, %56) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %58 = "stablehlo.add"(%54, %57) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %59 = "stablehlo.add"(%55, %58) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %60 = "stablehlo.constant"() {value = dense<17> : tensor<ui32>} : () -> tensor<ui32>
    %61 = "stablehlo.shift_left"(%58, %60) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %62 = "stablehlo.constant"() {value = dense<15> : tensor<ui32>} : () -> tensor<ui32>
    %63 = "stablehlo.shift_right_logical"(%58, %62) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %64 = "stablehlo.or"(%61, %63) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %65 = "stablehlo.xor"(%64, %59) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %66 = "stablehlo.add"(%59, %65) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %67 = "stablehlo.constant"() {value = dense<29> : tensor<ui32>} : () -> tensor<ui32>
    %68 = "stablehlo.shift_left"(%65, %67) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %69 = "stablehlo.constant"() {value = dense<3> : tensor<ui32>} : () -> tensor<ui32>
    %70 = "stablehlo.shift_right_logical"(%65, %69) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %71 = "stablehlo.or"(%68, %70) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %72 = "stablehlo.xor"(%71, %66) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %73 = "stablehlo.add"(%66, %72) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %74 = "stablehlo.constant"() {value = dense<16> : tensor<ui32>} : () -> tensor<ui32>
    %75 = "stablehlo.shift_left"(%72, %74) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %76 = "stablehlo.constant"() {value = dense<16> : tensor<ui32>} : () -> tensor<ui32>
    %77 = "stablehlo.shift_right_logical"(%72, %76) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %78 = "stablehlo.or"(%75, %77) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %79 = "stablehlo.xor"(%78, %73) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %80 = "stablehlo.add"(%73, %79) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %81 = "stablehlo.constant"() {value = dense<24> : tensor<ui32>} : () -> tensor<ui32>
    %82 = "stablehlo.shift_left"(%79, %81) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %83 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
    %84 = "stablehlo.shift_right_logical"(%79, %83) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %85 = "stablehlo.or"(%82, %84) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %86 = "stablehlo.xor"(%85, %80) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %87 = "stablehlo.add"(%80, %24) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %88 = "stablehlo.constant"() {value = dense<2> : tensor<ui32>} : () -> tensor<ui32>
    %89 = "stablehlo.add"(%9, %88) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %90 = "stablehlo.add"(%86, %89) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %91 = "stablehlo.add"(%87, %90) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %92 = "stablehlo.constant"() {value = dense<13> : tensor<ui32>} : () -> tensor<ui32>
    %93 = "stablehlo.shift_left"(%90, %92) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %94 = "stablehlo.constant"() {value = dense<19> : tensor<ui32>} : () -> tensor<ui32>
    %95 = "stablehlo.shift_right_logical"(%90, %94) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %96 = "stablehlo.or"(%93, %95) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %97 = "stablehlo.xor"(%96, %91) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %98 = "stablehlo.add"(%91, %97) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %99 = "stablehlo.constant"() {value = dense<15> : tensor<ui32>} : () -> tensor<ui32>
    %100 = "stablehlo.shift_left"(%97, %99) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %101 = "stablehlo.constant"() {value = dense<17> : tensor<ui32>} : () -> tensor<ui32>
    %102 = "stablehlo.shift_right_logical"(%97, %101) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %103 = "stablehlo.or"(%100, %102) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %104 = "stablehlo.xor"(%103, %98) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %105 = "stablehlo.add"(%98, %104) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %106 = "stablehlo.constant"() {value = dense<26> : tensor<ui32>} : () -> tensor<ui32>
    %107 = "stablehlo.shift_left"(%104, %106) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %108 = "stablehlo.constant"() {value = dense<6> : tensor<ui32>} : () -> tensor<ui32>
    %109 = "stablehlo.shift_right_logical"(%104, %108) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %110 = "stablehlo.or"(%107, %109) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %111 = "stablehlo.xor"(%110, %105) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %112 = "stablehlo.add"(%105, %111) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %113 = "stablehlo.constant"() {value = dense<6> : tensor<ui32>} : () -> tensor<ui32>
    %114 = "stablehlo.shift_left"(%111, %113) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %115 = "stablehlo.constant"() {value = dense<26> : tensor<ui32>} : () -> tensor<ui32>
    %116 = "stablehlo.shift_right_logical"(%111, %115) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %117 = "stablehlo.or"(%114, %116) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %118 = "stablehlo.xor"(%117, %112) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %119 = "stablehlo.add"(%112, %9) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %120 = "stablehlo.constant"() {value = dense<3> : tensor<ui32>} : () -> tensor<ui32>
    %121 = "stablehlo.add"(%10, %120) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %122 = "stablehlo.add"(%118, %121) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %123 = "stablehlo.add"(%119, %122) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %124 = "stablehlo.constant"() {value = dense<17> : tensor<ui32>} : () -> tensor<ui32>
    %125 = "stablehlo.shift_left"(%122, %124) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %126 = "stablehlo.constant"() {value = dense<15> : tensor<ui32>} : () -> tensor<ui32>
    %127 = "stablehlo.shift_right_logical"(%122, %126) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %128 = "stablehlo.or"(%125, %127) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %129 = "stablehlo.xor"(%128, %123) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %130 = "stablehlo.add"(%123, %129) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %131 = "stablehlo.constant"() {value = dense<29> : tensor<ui32>} : () -> tensor<ui32>
    %132 = "stablehlo.shift_left"(%129, %131) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %133 = "stablehlo.constant"() {value = dense<3> : tensor<ui32>} : () -> tensor<ui32>
    %134 = "stablehlo.shift_right_logical"(%129, %133) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %135 = "stablehlo.or"(%132, %134) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %136 = "stablehlo.xor"(%135, %130) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %137 = "stablehlo.add"(%130, %136) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %138 = "stablehlo.constant"() {value = dense<16> : tensor<ui32>} : () -> tensor<ui32>
    %139 = "stablehlo.shift_left"(%136, %138) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %140 = "stablehlo.constant"() {value = dense<16> : tensor<ui32>} : () -> tensor<ui32>
    %141 = "stablehlo.shift_right_logical"(%136, %140) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %142 = "stablehlo.or"(%139, %141) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %143 = "stablehlo.xor"(%142, %137) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %144 = "stablehlo.add"(%137, %143) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %145 = "stablehlo.constant"() {value = dense<24> : tensor<ui32>} : () -> tensor<ui32>
    %146 = "stablehlo.shift_left"(%143, %145) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %147 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
    %148 = "stablehlo.shift_right_logical"(%143, %147) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %149 = "stablehlo.or"(%146, %148) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %150 = "stablehlo.xor"(%149, %144) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %151 = "stablehlo.add"(%144, %10) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %152 = "stablehlo.constant"() {value = dense<4> : tensor<ui32>} : () -> tensor<ui32>
    %153 = "stablehlo.add"(%24, %152) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %154 = "stablehlo.add"(%150, %153) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %155 = "stablehlo.add"(%151, %154) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %156 = "stablehlo.constant"() {value = dense<13> : tensor<ui32>} : () -> tensor<ui32>
    %157 = "stablehlo.shift_left"(%154, %156) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %158 = "stablehlo.constant"() {value = dense<19> : tensor<ui32>} : () -> tensor<ui32>
    %159 = "stablehlo.shift_right_logical"(%154, %158) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %160 = "stablehlo.or"(%157, %159) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %161 = "stablehlo.xor"(%160, %155) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %162 = "stablehlo.add"(%155, %161) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %163 = "stablehlo.constant"() {value = dense<15> : tensor<ui32>} : () -> tensor<ui32>
    %164 = "stablehlo.shift_left"(%161, %163) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %165 = "stablehlo.constant"() {value = dense<17> : tensor<ui32>} : () -> tensor<ui32>
    %166 = "stablehlo.shift_right_logical"(%161, %165) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %167 = "stablehlo.or"(%164, %166) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %168 = "stablehlo.xor"(%167, %162) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %169 = "stablehlo.add"(%162, %168) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %170 = "stablehlo.constant"() {value = dense<26> : tensor<ui32>} : () -> tensor<ui32>
    %171 = "stablehlo.shift_left"(%168, %170) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %172 = "stablehlo.constant"() {value = dense<6> : tensor<ui32>} : () -> tensor<ui32>
    %173 = "stablehlo.shift_right_logical"(%168, %172) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %174 = "stablehlo.or"(%171, %173) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %175 = "stablehlo.xor"(%174, %169) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %176 = "stablehlo.add"(%169, %175) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %177 = "stablehlo.add"(%176, %24) : (tensor<ui32>, tensor<ui32>) -> tensor<ui32>
    %178 = "stablehlo.constant"() {value = dense<1> : tensor<ui64>} : () -> tensor<ui64>
    %179 = "stablehlo.add"(%4, %178) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
    %180 = "stablehlo.reshape"(%2) : (tensor<ui64>) -> tensor<1xui64>
    %181 = "stablehlo.reshape"(%179) : (tensor<ui64>) -> tensor<1xui64>
    %182 = "stablehlo.concatenate"(%180, %181) {dimension = 0 : i64} : (tensor<1xui64>, tensor<1xui64>) -> tensor<2xui64>
    "func.return"(%182, %177) : (tensor<2xui64>, tensor<ui32>) -> ()
  }
}
