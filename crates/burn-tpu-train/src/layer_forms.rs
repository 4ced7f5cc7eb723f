//! Layers in two forms: a `Vec` of blocks, whose tensors are `blocks.0.weight`, `blocks.1.weight` and so on, and the
//! blocks of `burn_tpu::Layers`, whose tensor is `blocks.*.weight`, `[layers, ..]`. A checkpoint of one loads into the
//! other.

use crate::stored_tensor::StoredTensor;
use std::collections::HashMap;

/// The name of all layers.
const ALL: &str = "*";

/// Brings the tensors of a file into the form of those that are expected, by name with their shapes. What has no other
/// form stays as it is.
pub(crate) fn adapt(found: &mut HashMap<String, StoredTensor>, expected: &[(String, Vec<usize>)]) {
    let mut taken: HashMap<String, usize> = HashMap::new();
    for (name, shape) in expected.iter().filter(|(name, _)| !found.contains_key(name)).cloned().collect::<Vec<_>>() {
        if let Some(stack) = stacked(found, &name, &shape) {
            found.insert(name, stack);
        } else if let Some((stack, layer)) = of_stack(found, &name) {
            found.insert(name, layer);
            *taken.entry(stack).or_default() += 1;
        }
    }
    // A stack of more layers than there are stays, and is reported.
    found.retain(|name, stack| taken.get(name).is_none_or(|taken| Some(taken) != stack.shape.first()));
}

/// Takes the tensors of all layers out, and returns them as the stack of this name.
fn stacked(found: &mut HashMap<String, StoredTensor>, name: &str, shape: &[usize]) -> Option<StoredTensor> {
    let place = name.split('.').position(|part| part == ALL)?;
    let names: Vec<String> = (0..*shape.first()?).map(|layer| renamed(name, place, &layer.to_string())).collect();
    let layers: Option<Vec<StoredTensor>> = names.iter().map(|name| found.get(name).cloned()).collect();
    let stack = StoredTensor::stack(layers?)?;
    names.iter().for_each(|name| drop(found.remove(name)));
    Some(stack)
}

/// Returns a layer's part of a stack, and the stack's name.
fn of_stack(found: &HashMap<String, StoredTensor>, name: &str) -> Option<(String, StoredTensor)> {
    name.split('.').enumerate().find_map(|(place, part)| {
        let stack = renamed(name, place, ALL);
        let layer = found.get(&stack)?.part(part.parse().ok()?)?;
        Some((stack, layer))
    })
}

/// Returns a name with another part at a place.
fn renamed(name: &str, place: usize, part: &str) -> String {
    let mut parts: Vec<&str> = name.split('.').collect();
    parts[place] = part;
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_tensor::testing::{elements, saved};
    use burn_tpu::distributed::Region;

    fn names(found: &HashMap<String, StoredTensor>) -> Vec<&str> {
        let mut names: Vec<&str> = found.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Returns the elements of a tensor's region.
    fn read(tensor: &StoredTensor, region: &Region) -> Vec<f32> {
        elements(&tensor.read(region).unwrap())
    }

    #[test]
    fn each_form_becomes_the_other() {
        let (rows, all) = ([[1.0f32, 2.0], [3.0, 4.0]], [1.0f32, 2.0, 3.0, 4.0]);
        let layers: [(&str, &[usize], &[f32]); 3] =
            [("blocks.0.bias", &[2], &rows[0]), ("blocks.1.bias", &[2], &rows[1]), ("head.weight", &[1], &[5.0])];
        let (_folder, mut found) = saved(&layers);
        adapt(&mut found, &[("blocks.*.bias".to_owned(), vec![2, 2]), ("head.weight".to_owned(), vec![1])]);
        assert_eq!(names(&found), ["blocks.*.bias", "head.weight"]);
        assert_eq!(read(&found["blocks.*.bias"], &Region::whole(&[2, 2])), all);
        let column = Region { start: vec![0, 1], sizes: vec![2, 1] };
        assert_eq!(read(&found["blocks.*.bias"], &column), [2.0, 4.0]);

        let (_folder, mut found) = saved(&[("blocks.*.bias", &[2, 2], &all)]);
        adapt(&mut found, &[("blocks.0.bias".to_owned(), vec![2]), ("blocks.1.bias".to_owned(), vec![2])]);
        assert_eq!(names(&found), ["blocks.0.bias", "blocks.1.bias"]);
        for (layer, row) in rows.into_iter().enumerate() {
            assert_eq!(read(&found[&format!("blocks.{layer}.bias")], &Region::whole(&[2])), row);
        }
    }

    #[test]
    fn what_does_not_fit_stays_as_it_is() {
        let tensors: [(&str, &[usize], &[f32]); 2] =
            [("blocks.*.bias", &[3, 1], &[1.0, 2.0, 3.0]), ("other.0.bias", &[1], &[4.0])];
        let (_folder, mut found) = saved(&tensors);
        let expected = ["blocks.0.bias", "blocks.1.bias", "blocks.3.bias", "other.*.bias"];
        adapt(&mut found, &expected.map(|name| (name.to_owned(), vec![2, 1])));
        assert_eq!(names(&found), ["blocks.*.bias", "blocks.0.bias", "blocks.1.bias", "other.0.bias"]);
    }
}
