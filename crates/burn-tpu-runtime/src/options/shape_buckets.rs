//! The sizes of buffers where the sizes of a program vary.

/// The sizes of buffers where the sizes of a program vary: each size is padded to the next bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeBuckets {
    /// None: every size is a program of its own.
    Off,
    /// Powers of two from 8 on, and from 512 on one step between two of them: at most half of a buffer is padding, and a
    /// third of a large one.
    #[default]
    Doubling,
    /// Multiples of a number.
    Steps(usize),
    /// These sizes, ascending. A larger one is a program of its own.
    Sizes(Vec<usize>),
}

const LEAST: i64 = 8;

/// The power of two from which there is a step between two buckets.
const LARGE: i64 = 512;

impl ShapeBuckets {
    /// Returns the bucket of a size; `None` if it has none.
    pub(crate) fn bucket(&self, size: i64) -> Option<i64> {
        match self {
            Self::Off => None,
            Self::Doubling => {
                let power = u64::try_from(size.max(LEAST)).ok()?.checked_next_power_of_two()?;
                let (power, between) = (i64::try_from(power).ok()?, i64::try_from(power / 4 * 3).ok()?);
                Some(if between > LARGE && size <= between { between } else { power })
            }
            Self::Steps(step) => {
                let step = i64::try_from(*step).ok().filter(|&step| step > 0)?;
                size.max(1).checked_add(step - 1).map(|size| size / step * step)
            }
            Self::Sizes(sizes) => {
                sizes.iter().filter_map(|&bucket| i64::try_from(bucket).ok()).find(|&bucket| bucket >= size)
            }
        }
    }

    /// Returns the buckets from the smallest to that of a size, ascending.
    pub(crate) fn up_to(&self, size: i64) -> Vec<i64> {
        let next = |last: &i64| if *last < size { self.bucket(last + 1) } else { None };
        std::iter::successors(self.bucket(0), next).collect()
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rule = || "is not `off`, `doubling`, `steps=` a number from 1 on, or ascending sizes".to_owned();
        let number = |text: &str| text.trim().parse().ok().filter(|&number: &usize| number > 0).ok_or_else(rule);
        match text.split_once('=') {
            None if text == "off" => Ok(Self::Off),
            None if text == "doubling" => Ok(Self::Doubling),
            Some(("steps", step)) => number(step).map(Self::Steps),
            None => {
                let sizes: Vec<usize> = text.split(',').map(number).collect::<Result<_, _>>()?;
                if sizes.is_sorted() { Ok(Self::Sizes(sizes)) } else { Err(rule()) }
            }
            Some(_) => Err(rule()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_next_bucket() {
        let doubling = |size| ShapeBuckets::Doubling.bucket(size).unwrap();
        assert_eq!([0, 1, 8, 9, 33].map(doubling), [8, 8, 8, 16, 64]);
        assert_eq!([511, 513, 768, 769, 1025, 1537].map(doubling), [512, 768, 768, 1024, 1536, 2048]);
        assert_eq!([0, 1, 128, 129].map(|size| ShapeBuckets::Steps(128).bucket(size).unwrap()), [128, 128, 128, 256]);
        let sizes = ShapeBuckets::Sizes(vec![4, 10]);
        assert_eq!([1, 5, 11].map(|size| sizes.bucket(size)), [Some(4), Some(10), None]);
        assert_eq!(ShapeBuckets::Off.bucket(3), None);
        assert_eq!(ShapeBuckets::Doubling.up_to(40), [8, 16, 32, 64]);
        assert_eq!(ShapeBuckets::Steps(20).up_to(40), [20, 40]);
        assert_eq!(ShapeBuckets::Sizes(vec![4, 10]).up_to(40), [4, 10]);
        assert_eq!(ShapeBuckets::Off.up_to(40), [0; 0]);
    }

    #[test]
    fn a_variable_names_each_of_them() {
        assert_eq!(ShapeBuckets::parse("off"), Ok(ShapeBuckets::Off));
        assert_eq!(ShapeBuckets::parse("steps=64"), Ok(ShapeBuckets::Steps(64)));
        assert_eq!(ShapeBuckets::parse("8, 64"), Ok(ShapeBuckets::Sizes(vec![8, 64])));
        for wrong in ["steps=0", "64,8", "sometimes", "at=3"] {
            assert!(ShapeBuckets::parse(wrong).is_err(), "{wrong}");
        }
    }
}
