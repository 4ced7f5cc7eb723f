//! Ranks lines by the product of their vectors with a query's. All have length 1, so a score is a cosine.

use crate::text::Line;

/// A place in the list of lines, and its score.
pub type Ranked = (usize, f32);

/// Returns the best `top` lines, the best first.
pub fn ranked(query: &[f32], lines: &[Vec<f32>], top: usize) -> Vec<Ranked> {
    let score = |line: &Vec<f32>| line.iter().zip(query).map(|(a, b)| a * b).sum::<f32>();
    let mut ranked: Vec<_> = lines.iter().map(score).enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked.truncate(top);
    ranked
}

/// Prints scores, line numbers and texts.
pub fn print(lines: &[Line], ranked: &[Ranked]) {
    for &(place, score) in ranked {
        let Line { number, text } = &lines[place];
        println!("{score:>7.4}  {number:>5}  {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_lines_come_first() {
        let lines = [vec![0.0, 1.0], vec![1.0, 0.0], vec![0.6, 0.8]];
        let places = |top| ranked(&[1.0, 0.0], &lines, top).iter().map(|ranked| ranked.0).collect::<Vec<_>>();
        assert_eq!(places(5), [1, 2, 0]);
        assert_eq!(places(1), [1]);
    }
}
