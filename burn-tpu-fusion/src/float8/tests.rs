use super::*;
use burn_tpu_graph::{custom_calls, verify};

/// Returns the product of two parameters, `[rows, summed]` and `[summed, columns]`.
fn product_of(dtype: DType, [rows, summed, columns]: [usize; 3]) -> Program {
    let mut graph = Graph::new();
    let mut parameter =
        |index, dims: [usize; 2]| graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap();
    let (x, w) = (parameter(0, [rows, summed]), parameter(1, [summed, columns]));
    let attrs = DotAttrs::new([&[], &[]], [&[1], &[0]], DType::F32);
    let product = graph.dot_general(x, w, attrs).unwrap();
    Program::extract(&graph, &[product]).unwrap()
}

#[test]
fn large_products_of_bf16_become_calls() {
    for format in Float8Format::ALL {
        let program = product_of(DType::BF16, [3000, 2048, 2500]);
        let rewritten = Float8::new(format).run(&program).unwrap();
        assert_eq!(rewritten.count, 1);
        verify(&rewritten.program).unwrap();
        let [call] = &custom_calls(&rewritten.program)[..] else { panic!("no call:\n{}", rewritten.program) };
        let CallForm::Function(function) = call.form() else { panic!("no function") };
        let name = format!("3000x2048xf8{}", format.to_string().to_uppercase());
        assert!(function.source().contains(&name), "{}", function.source());
        assert_eq!(Float8::new(format).run(&rewritten.program).unwrap().count, 0);
    }
}

#[test]
fn other_products_stay() {
    let stays = |program: &Program| Float8::new(Float8Format::E5M2).run(program).unwrap().count == 0;
    for sides in [[2047, 2048, 2048], [2048, 2047, 2048], [2048, 2048, 2047]] {
        assert!(stays(&product_of(DType::BF16, sides)), "{sides:?}");
    }
    assert!(stays(&product_of(DType::F32, [2048, 2048, 2048])));
    let small = Float8 { least: 8, ..Float8::new(Float8Format::E5M2) };
    assert_eq!(small.run(&product_of(DType::BF16, [8, 8, 8])).unwrap().count, 1);
}

#[test]
fn a_pass_is_parsed_from_a_format_and_a_side() {
    assert_eq!("e5m2".parse(), Ok(Float8::new(Float8Format::E5M2)));
    assert_eq!("e4m3fn:64".parse(), Ok(Float8 { format: Float8Format::E4M3FN, least: 64 }));
    assert!("e4m3".parse::<Float8>().unwrap_err().contains("e5m2, e4m3fn, e4m3b11fnuz"));
    assert!("e5m2:".parse::<Float8>().unwrap_err().contains("number"));
}
