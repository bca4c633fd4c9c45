//! What a test does next is chosen by a seed, or by bytes, which a fuzzer makes.

use fastrand::Rng;

/// Choices, one after the other.
#[derive(Debug)]
pub enum Choices {
    /// Without an end.
    Seeded(Rng),
    /// As the bytes say; zeros behind their end.
    Given { bytes: Vec<u8>, at: usize },
}

impl Choices {
    pub fn seeded(seed: u64) -> Self {
        Self::Seeded(Rng::with_seed(seed))
    }

    pub fn given(bytes: &[u8]) -> Self {
        Self::Given { bytes: bytes.to_vec(), at: 0 }
    }

    /// Whether there is nothing left to choose by.
    pub fn ended(&self) -> bool {
        matches!(self, Self::Given { bytes, at } if *at >= bytes.len())
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        match self {
            Self::Seeded(rng) => rng.fill(out),
            Self::Given { bytes, at } => {
                let left = &bytes[*at..];
                let n = left.len().min(out.len());
                out[..n].copy_from_slice(&left[..n]);
                out[n..].fill(0);
                *at += n;
            }
        }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    pub fn bool(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// A number less than `n`, which is at least 1; of as few bytes as there need to be.
    pub fn below(&mut self, n: usize) -> usize {
        match n {
            0 => panic!("nothing is below 0"),
            1 => 0,
            2..=0x100 => usize::from(self.u8()) % n,
            0x101..=0x1_0000 => usize::from(self.u16()) % n,
            _ => self.u64() as usize % n,
        }
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    pub fn one_of<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }
}
