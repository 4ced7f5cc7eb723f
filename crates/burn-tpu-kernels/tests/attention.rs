//! The arithmetic of attention's kernels: the interpreter's results beside attention as it is defined, in f64, and its
//! gradient in closed form.

use burn_tpu_kernels::kernels::attention::{Attention, Band, Bias, Blocks, Dropout, Dropped};
use burn_tpu_kernels::{Array, Element, interpret};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The operands of attention.
struct Inputs {
    queries: Array,
    keys: Array,
    values: Array,
    gradient: Array,
    biases: Vec<Array>,
    lengths: Option<Array>,
    state: Option<Array>,
}

/// What attention and its gradient return, in the order of the kernels' results.
struct Outputs {
    out: Vec<f64>,
    logsumexp: Vec<f64>,
    gradients: [Vec<f64>; 3],
    /// Of the result and of the gradients, the largest sum of the magnitudes of what is added up, which bounds rounding.
    sizes: [f64; 4],
}

/// A small random number generator with the same sequence in every run.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns an array of numbers between -2 and 2.
    fn array(&mut self, element: Element, dims: &[usize]) -> Array {
        let count = dims.iter().product();
        Array::floats(element, dims, (0..count).map(|_| (self.next() % 4001) as f32 / 1000.0 - 2.0))
    }
}

fn inputs(attention: &Attention, seed: u64) -> Inputs {
    let mut random = Xorshift(seed | 1);
    let (query, key) = (attention.query_type(), attention.key_type());
    let limit = attention.keys as u64 + 3;
    Inputs {
        queries: random.array(attention.element, &query.dims),
        keys: random.array(attention.element, &key.dims),
        values: random.array(attention.element, &key.dims),
        gradient: random.array(attention.element, &query.dims),
        biases: attention.biases.iter().map(|of| bias(attention, of, &mut random)).collect(),
        lengths: attention.has_lengths.then(|| {
            let lengths = (0..attention.batch).map(|_| (random.next() % limit) as i32);
            Array::ints(Element::I32, &[attention.batch], lengths)
        }),
        // A counter whose low word wraps around within the draw.
        state: attention.dropout.map(|_| {
            let words = [random.next() as i32, random.next() as i32, -3, random.next() as i32];
            Array::ints(Element::I32, &[4], words)
        }),
    }
}

/// Returns a bias of which, every other time, a third hides keys.
fn bias(attention: &Attention, of: &Bias, random: &mut Xorshift) -> Array {
    let bias = random.array(of.element, &[of.batch, of.heads, of.queries, attention.keys]);
    let hides = random.next().is_multiple_of(2);
    let hidden = |value: &f32| if hides && *value > 0.7 { f32::NEG_INFINITY } else { *value };
    Array::floats(of.element, &bias.ty().dims, bias.as_floats().iter().map(hidden))
}

/// Runs the three kernels.
fn by_kernels(attention: &Attention, inputs: &Inputs) -> Outputs {
    let masks: Vec<Array> = inputs.biases.iter().chain(&inputs.lengths).chain(&inputs.state).cloned().collect();
    let run = |kernel, operands: &[&Array]| {
        let operands: Vec<Array> = operands.iter().copied().chain(&masks).cloned().collect();
        interpret(&kernel, &operands).unwrap()
    };
    let Inputs { queries, keys, values, gradient, .. } = inputs;
    let forward = run(attention.forward().unwrap(), &[queries, keys, values]);
    let (out, logsumexp) = (&forward[0], &forward[1]);
    let products = out.as_floats().iter().zip(gradient.as_floats()).map(|(out, gradient)| out * gradient);
    let products: Vec<f32> = products.collect();
    let sums = products.chunks(attention.head_dim).map(|row| row.iter().sum());
    let sums = Array::floats(Element::F32, &attention.row_type().dims, sums);
    let operands = [queries, keys, values, gradient, logsumexp, &sums];
    let of_queries = run(attention.query_gradient().unwrap(), &operands);
    let of_keys = run(attention.key_gradient().unwrap(), &operands);
    Outputs {
        out: wide(out),
        logsumexp: wide(logsumexp),
        gradients: [wide(&of_queries[0]), wide(&of_keys[0]), wide(&of_keys[1])],
        sizes: [0.0; 4],
    }
}

fn wide(array: &Array) -> Vec<f64> {
    array.as_floats().iter().copied().map(f64::from).collect()
}

/// Returns the sum of the biases of query `q` and key `key` in head `h` of sequence `b`.
fn bias_at(attention: &Attention, inputs: &Inputs, [b, h, q, key]: [usize; 4]) -> f64 {
    let at = |(of, bias): (&Bias, &Array)| {
        let (b, h, q) = (b.min(of.batch - 1), h.min(of.heads - 1), q.min(of.queries - 1));
        f64::from(bias.as_floats()[((b * of.heads + h) * of.queries + q) * attention.keys + key])
    };
    attention.biases.iter().zip(&inputs.biases).map(at).sum()
}

/// Returns whether query `q` sees key `key` in head `h` of sequence `b`.
fn sees(attention: &Attention, inputs: &Inputs, [b, h, q, key]: [usize; 4]) -> bool {
    let Band { left, right, offset } = attention.band;
    let distance = key as i64 - q as i64 - i64::from(offset);
    bias_at(attention, inputs, [b, h, q, key]) > f64::NEG_INFINITY
        && left.is_none_or(|left| distance >= -i64::from(left))
        && right.is_none_or(|right| distance <= i64::from(right))
        && inputs.lengths.as_ref().is_none_or(|lengths| (key as i64) < i64::from(lengths.as_ints()[b]))
}

/// Returns 1 for a number that is kept and 0 for one that is dropped: a word of the draw, in the order of XLA's expander, is
/// small enough, or not.
fn kept(attention: &Attention, inputs: &Inputs, of: Dropped, at: [usize; 4]) -> f64 {
    let dropout = attention.dropout.filter(|dropout| dropout.of == of);
    let (Some(dropout), Some(state)) = (dropout, &inputs.state) else { return 1.0 };
    let sizes = [attention.batch, attention.heads, attention.queries, attention.keys];
    let largest = sizes.iter().max().expect("four sizes");
    let split = sizes.iter().position(|size| size % 2 == 0);
    let split = split.or_else(|| sizes.iter().position(|size| size == largest)).expect("a largest");
    let mut index = 0;
    for dim in 0..4 {
        let halved = |at: usize| if dim == split { at / 2 } else { at };
        let blocks = if dim == split { sizes[dim].div_ceil(2) } else { sizes[dim] };
        index = index * blocks as u64 + halved(at[dim]) as u64;
    }
    let words: Vec<u32> = state.as_ints().iter().map(|&word| word as u32).collect();
    let counter = (u64::from(words[3]) << 32 | u64::from(words[2])).wrapping_add(index);
    let word = threefry([words[0], words[1]], [counter as u32, (counter >> 32) as u32])[at[split] % 2];
    f64::from(u8::from(word <= dropout.most))
}

/// Threefry 2x32 with 20 rounds (Salmon et al., 2011).
fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    let mut x = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for round in 0..20 {
        x[0] = x[0].wrapping_add(x[1]);
        x[1] = x[1].rotate_left([13, 15, 26, 6, 17, 29, 16, 24][round % 8]) ^ x[0];
        if round % 4 == 3 {
            let group = round / 4 + 1;
            x = [x[0].wrapping_add(keys[group % 3]), x[1].wrapping_add(keys[(group + 1) % 3])];
            x[1] = x[1].wrapping_add(group as u32);
        }
    }
    x
}

/// The known answers of Salmon et al.'s library (`kat_vectors`).
#[test]
fn the_words_of_a_draw_are_threefrys() {
    assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
    assert_eq!(threefry([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
}

/// Computes attention as it is defined, one query at a time.
fn by_definition(attention: &Attention, inputs: &Inputs) -> Outputs {
    let Attention { batch, heads, key_heads, queries, keys, head_dim, .. } = *attention;
    let [q, k, v, d_out] = [&inputs.queries, &inputs.keys, &inputs.values, &inputs.gradient].map(wide);
    let mut found = Outputs {
        out: vec![0.0; q.len()],
        logsumexp: vec![f64::NEG_INFINITY; batch * heads * queries],
        gradients: [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; k.len()]],
        sizes: [0.0; 4],
    };
    let mut sizes = [q.len(), q.len(), k.len(), k.len()].map(|length| vec![0.0; length]);
    for row in 0..batch * heads * queries {
        let (b, h, query) = (row / queries / heads, row / queries % heads, row % queries);
        let of_key = |key: usize| ((b * key_heads + h * key_heads / heads) * keys + key) * head_dim;
        let dot = |x: &[f64], at: usize, y: &[f64], to: usize| -> f64 {
            (0..head_dim).map(|width| x[at + width] * y[to + width]).sum()
        };
        let seen: Vec<usize> = (0..keys).filter(|&key| sees(attention, inputs, [b, h, query, key])).collect();
        let scores: Vec<(f64, f64)> = seen
            .iter()
            .map(|&key| {
                let scaled = f64::from(attention.scale) * dot(&q, row * head_dim, &k, of_key(key));
                let (capped, slope) = attention.softcap.map_or((scaled, 1.0), |cap| {
                    let tanh = (scaled / f64::from(cap)).tanh();
                    (f64::from(cap) * tanh, 1.0 - tanh * tanh)
                });
                let bias = bias_at(attention, inputs, [b, h, query, key]);
                let kept = kept(attention, inputs, Dropped::Scores, [b, h, query, key]);
                (kept * capped + bias, kept * slope)
            })
            .collect();
        let max = scores.iter().fold(f64::NEG_INFINITY, |max, (score, _)| max.max(*score));
        let sum: f64 = scores.iter().map(|(score, _)| (score - max).exp()).sum();
        found.logsumexp[row] = max + sum.ln();
        let weights: Vec<f64> = scores.iter().map(|(score, _)| (score - max).exp() / sum).collect();
        let products: Vec<f64> = seen.iter().map(|&key| dot(&d_out, row * head_dim, &v, of_key(key))).collect();
        let kept = |&key: &usize| kept(attention, inputs, Dropped::Weights, [b, h, query, key]);
        let kept: Vec<f64> = seen.iter().map(kept).collect();
        let products: Vec<f64> = products.iter().zip(&kept).map(|(product, kept)| product * kept).collect();
        let mean: f64 = weights.iter().zip(&products).map(|(weight, product)| weight * product).sum();
        for (place, &key) in seen.iter().enumerate() {
            for width in 0..head_dim {
                let value = weights[place] * kept[place] * v[of_key(key) + width];
                found.out[row * head_dim + width] += value;
                sizes[0][row * head_dim + width] += value.abs();
            }
        }
        let size: f64 =
            (0..head_dim).map(|width| row * head_dim + width).map(|at| (found.out[at] * d_out[at]).abs()).sum();
        for (place, &key) in seen.iter().enumerate() {
            let factor = weights[place] * scores[place].1 * f64::from(attention.scale);
            let kept = weights[place] * kept[place];
            let (d_score, size) = (factor * (products[place] - mean), factor * (products[place].abs() + size));
            for width in 0..head_dim {
                let (at, to) = (row * head_dim + width, of_key(key) + width);
                let terms = [(0, at, d_score * k[to]), (1, to, d_score * q[at]), (2, to, kept * d_out[at])];
                terms.into_iter().for_each(|(name, place, term)| found.gradients[name][place] += term);
                let terms = [(1, at, size * k[to]), (2, to, size * q[at]), (3, to, kept * d_out[at])];
                terms.into_iter().for_each(|(name, place, term): (usize, usize, f64)| sizes[name][place] += term.abs());
            }
        }
    }
    found.sizes = sizes.map(|sizes| sizes.into_iter().fold(0.0, f64::max));
    found
}

/// Returns the largest difference beside a size, or beside one if that is larger.
fn distance(found: &[f64], expected: &[f64], size: f64) -> f64 {
    assert!(found.iter().all(|value| value.is_finite()), "a number is not finite");
    found.iter().zip(expected).fold(0.0, |most: f64, (found, expected)| most.max((found - expected).abs()))
        / size.max(1.0)
}

/// Asserts that the kernels agree with the definition.
fn agree(attention: &Attention, seed: u64) {
    let inputs = inputs(attention, seed);
    let (found, expected) = (by_kernels(attention, &inputs), by_definition(attention, &inputs));
    // In bf16 what is added up is rounded once, and so is the sum: by 1/512 each, and seldom all in one direction.
    let tolerance = if attention.element == Element::F32 { 1e-5 } else { 1.0 / 128.0 };
    let mut distances = vec![("out", distance(&found.out, &expected.out, expected.sizes[0]))];
    let seen: Vec<usize> = (0..expected.logsumexp.len()).filter(|&row| expected.logsumexp[row].is_finite()).collect();
    let of_seen = |rows: &[f64]| seen.iter().map(|&row| rows[row]).collect::<Vec<_>>();
    distances.push(("logsumexp", distance(&of_seen(&found.logsumexp), &of_seen(&expected.logsumexp), 1.0)));
    let empty = |row: usize| expected.logsumexp[row].is_finite() || found.logsumexp[row] < -1e38;
    assert!((0..expected.logsumexp.len()).all(empty), "{attention:?}: logsumexp of a query that sees no key");
    let names = ["gradient of queries", "gradient of keys", "gradient of values"];
    let gradients = found.gradients.iter().zip(&expected.gradients).zip(&expected.sizes[1..]);
    for (name, ((found, expected), size)) in names.into_iter().zip(gradients) {
        distances.push((name, distance(found, expected, *size)));
    }
    assert!(distances.iter().all(|(_, distance)| *distance < tolerance), "{attention:?}: {distances:?}");
}

/// Returns attention of random shapes, with random masks, in random blocks.
fn any_attention() -> impl Strategy<Value = Attention> {
    let bound = || prop_oneof![Just(None), (0..12_i32).prop_map(Some), (-3..3_i32).prop_map(Some)];
    let band = (bound(), bound(), -6..14_i32).prop_map(|(left, right, offset)| Band { left, right, offset });
    let sizes = (1..3_usize, 1..3_usize, 1..3_usize, 1..4_usize, 1..4_usize);
    let blocks = (prop_oneof![Just(4_usize), Just(8), Just(5)], prop_oneof![Just(4_usize), Just(8), Just(7)]);
    let element = prop_oneof![Just(Element::F32), Just(Element::BF16)];
    let softcap = prop_oneof![Just(None), Just(Some(2.0_f32)), Just(Some(30.0))];
    let biases = proptest::collection::vec(any::<[bool; 3]>(), 0..3);
    let most = prop_oneof![Just(u32::MAX / 10 * 9), Just(1 << 30)];
    let dropped = prop_oneof![Just(Dropped::Weights), Just(Dropped::Scores)];
    let dropout = proptest::option::of((most, dropped).prop_map(|(most, of)| Dropout::new(most, of)));
    (sizes, blocks, element, band, softcap, biases, any::<bool>(), dropout).prop_map(
        |(
            (batch, key_heads, group, rows, columns),
            (queries, keys),
            element,
            band,
            softcap,
            biases,
            has_lengths,
            dropout,
        )| {
            let heads = key_heads * group;
            let own = |is_own: bool, all: usize| if is_own { all } else { 1 };
            let bias = |[b, h, q]: [bool; 3]| Bias {
                element: if q { element } else { Element::F32 },
                batch: own(b, batch),
                heads: own(h, heads),
                queries: own(q, queries * rows),
            };
            Attention {
                key_heads,
                softcap,
                band,
                has_lengths,
                biases: biases.into_iter().map(bias).collect(),
                dropout,
                blocks: Blocks { queries, keys },
                ..Attention::new(element, batch, heads, queries * rows, keys * columns, 8)
            }
        },
    )
}

/// Returns a configuration for random cases from a fixed seed. `PROPTEST_CASES` sets another number of cases.
fn cases(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|value| value.parse().ok());
    let (cases, rng_seed) = (asked.unwrap_or(cases), RngSeed::Fixed(0));
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn attention_and_its_gradient_are_as_defined(attention in any_attention(), seed in any::<u64>()) {
        agree(&attention, seed);
    }
}

/// Returns part `[b, h]` of `[batch, heads, ..]` of which each part has `sizes`; a dim of size 1 is not divided.
fn part(array: &Array, at: [usize; 2], sizes: [usize; 2]) -> Array {
    let (element, dims) = (array.ty().element, &array.ty().dims);
    let (mut cut, mut kept) = (dims.clone(), array.as_floats().to_vec());
    for dim in (0..2).filter(|&dim| dims[dim] > 1) {
        let inner: usize = dims[dim + 1..].iter().product();
        cut[dim] = sizes[dim];
        let rows = kept.chunks(dims[dim] * inner);
        kept = rows.flat_map(|row| row[at[dim] * sizes[dim] * inner..][..sizes[dim] * inner].to_vec()).collect();
    }
    Array::floats(element, &cut, kept)
}

/// Returns the inputs that the device of a part has.
fn inputs_of_part(all: &Inputs, of: &Attention, at: [usize; 2]) -> Inputs {
    let part = |array: &Array, heads: usize| part(array, at, [of.batch, heads]);
    let first = [at[0] * of.batch, at[1] * of.heads];
    Inputs {
        queries: part(&all.queries, of.heads),
        keys: part(&all.keys, of.key_heads),
        values: part(&all.values, of.key_heads),
        gradient: part(&all.gradient, of.heads),
        biases: all.biases.iter().map(|bias| part(bias, of.heads)).collect(),
        lengths: all
            .lengths
            .as_ref()
            .map(|lengths| Array::ints(Element::I32, &[of.batch], lengths.as_ints()[first[0]..][..of.batch].to_vec())),
        state: all.state.as_ref().map(|state| {
            let words = state.as_ints().iter().copied().chain(first.map(|place| place as i32));
            Array::ints(Element::I32, &[6], words)
        }),
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_part_of_attention_has_the_values_of_the_whole(one in any_attention(), seed in any::<u64>()) {
        let twice = |size: usize| if size == 1 { 1 } else { 2 * size };
        let bias = |bias: &Bias| Bias { batch: twice(bias.batch), heads: twice(bias.heads), ..*bias };
        let whole = Attention {
            batch: 2 * one.batch,
            heads: 2 * one.heads,
            key_heads: 2 * one.key_heads,
            biases: one.biases.iter().map(bias).collect(),
            ..one.clone()
        };
        let of = whole.part(2, 2).unwrap();
        prop_assert_eq!((of.batch, of.heads, of.key_heads), (one.batch, one.heads, one.key_heads));
        let all = inputs(&whole, seed);
        let by_whole = by_kernels(&whole, &all);
        let [queries, keys] = [whole.query_type().dims, whole.key_type().dims];
        for at in [[0, 0], [0, 1], [1, 0], [1, 1]] {
            let found = by_kernels(&of, &inputs_of_part(&all, &of, at));
            let expected = |values: &[f64], dims: &[usize], heads: usize| {
                let values = Array::floats(Element::F32, dims, values.iter().map(|&value| value as f32));
                wide(&part(&values, at, [of.batch, heads]))
            };
            prop_assert_eq!(&found.out, &expected(&by_whole.out, &queries, of.heads));
            let [of_queries, of_keys, of_values] = &by_whole.gradients;
            prop_assert_eq!(&found.gradients[0], &expected(of_queries, &queries, of.heads));
            prop_assert_eq!(&found.gradients[1], &expected(of_keys, &keys, of.key_heads));
            prop_assert_eq!(&found.gradients[2], &expected(of_values, &keys, of.key_heads));
        }
    }
}

#[test]
fn attention_in_the_blocks_of_a_tpu_is_as_defined() {
    for element in [Element::F32, Element::BF16] {
        let all = Attention::new(element, 1, 2, 256, 384, 64);
        agree(&Attention { blocks: Blocks { queries: 128, keys: 128 }, ..all.clone() }, 7);
        agree(&Attention { band: Band { offset: 128, ..Band::CAUSAL }, ..all.clone() }, 8);
        agree(&Attention { band: Band::window(100), key_heads: 1, has_lengths: true, ..all }, 9);
    }
}

#[test]
fn hidden_blocks_cost_nothing() {
    let all =
        Attention { blocks: Blocks { queries: 128, keys: 128 }, ..Attention::new(Element::BF16, 1, 1, 1024, 1024, 64) };
    let causal = Attention { band: Band::CAUSAL, ..all.clone() };
    let window = Attention { band: Band::window(128), ..all.clone() };
    for (kernels, extra_flops) in [
        ([all.forward(), causal.forward(), window.forward()], 1.1),
        ([all.query_gradient(), causal.query_gradient(), window.query_gradient()], 1.1),
        ([all.key_gradient(), causal.key_gradient(), window.key_gradient()], 1.1),
    ] {
        let [all, causal, window] = kernels.map(|kernel| kernel.unwrap().cost());
        let share = |part: u64, of: u64| part as f64 / of as f64;
        // 36 and 15 of 64 blocks; the comparisons of the masks come on top.
        assert!((0.55..0.5625 * extra_flops).contains(&share(causal.flops, all.flops)), "{causal:?} of {all:?}");
        assert!((0.23..0.2344 * extra_flops).contains(&share(window.flops, all.flops)), "{window:?} of {all:?}");
        assert!(share(causal.bytes_accessed, all.bytes_accessed) < 0.75, "{causal:?} of {all:?}");
        assert!(share(window.bytes_accessed, all.bytes_accessed) < 0.5, "{window:?} of {all:?}");
    }
}

#[test]
fn the_gradient_is_that_of_differences() {
    let attention = Attention { softcap: Some(3.0), band: Band::CAUSAL, ..Attention::new(Element::F32, 1, 1, 8, 8, 8) };
    let inputs = inputs(&attention, 5);
    let value = |inputs: &Inputs| -> f64 {
        by_definition(&attention, inputs)
            .out
            .iter()
            .zip(wide(&inputs.gradient))
            .map(|(out, gradient)| out * gradient)
            .sum()
    };
    let expected = by_definition(&attention, &inputs).gradients;
    for place in 0..inputs.queries.as_floats().len() {
        let moved = |array: &Array, by: f32| {
            let values = array.as_floats().iter().enumerate();
            let values = values.map(|(at, value)| if at == place { value + by } else { *value });
            Array::floats(Element::F32, &array.ty().dims, values)
        };
        let by = |name: usize, step: f32| {
            let arrays = [&inputs.queries, &inputs.keys, &inputs.values];
            let arrays = [0, 1, 2].map(|at| if at == name { moved(arrays[at], step) } else { arrays[at].clone() });
            let [queries, keys, values] = arrays;
            value(&Inputs {
                queries,
                keys,
                values,
                gradient: inputs.gradient.clone(),
                biases: Vec::new(),
                lengths: None,
                state: None,
            })
        };
        for (name, expected) in expected.iter().enumerate() {
            let slope = (by(name, 0.015_625) - by(name, -0.015_625)) / 0.031_25;
            assert!((slope - expected[place]).abs() < 5e-3, "{name} {place}: {slope} and {}", expected[place]);
        }
    }
}

#[test]
fn what_the_kernels_do_not_take_is_refused() {
    let good = Attention::new(Element::BF16, 2, 6, 512, 512, 64);
    let refused = [
        (Attention { element: Element::I8, ..good.clone() }, "elements are f32 or bf16"),
        (Attention { key_heads: 4, ..good.clone() }, "key heads divide heads"),
        (Attention { batch: 0, ..good.clone() }, "sizes are from 1 to 2^24"),
        (Attention { band: Band { offset: i32::MIN, ..Band::ALL }, ..good.clone() }, "sizes are from 1 to 2^24"),
        (Attention { blocks: Blocks { queries: 100, keys: 512 }, ..good.clone() }, "blocks divide the sequences"),
        (Attention::new(Element::BF16, 1, 1, 1100, 512, 64), "blocks have at most 1024"),
        (Attention { head_dim: 512, ..good.clone() }, "heads a width of 256"),
        (
            Attention { biases: vec![Bias { element: Element::F32, batch: 3, heads: 1, queries: 1 }], ..good.clone() },
            "a bias has 1 or all of batch, heads and queries",
        ),
        (
            Attention { biases: vec![Bias { element: Element::BF16, batch: 1, heads: 1, queries: 1 }], ..good.clone() },
            "those of a bias with one row f32",
        ),
    ];
    for (attention, rule) in refused {
        for kernel in [attention.forward(), attention.query_gradient(), attention.key_gradient()] {
            let error = kernel.unwrap_err().to_string();
            assert!(error.starts_with("attention takes no") && error.contains(rule), "{error}");
        }
    }
    let odd = Attention { blocks: Blocks { queries: 64, keys: 64 }, ..good };
    let error = odd.forward().unwrap().custom_call().unwrap_err().to_string();
    assert!(error.contains("the last two sizes are multiples of 8 and 128"), "{error}");
}
