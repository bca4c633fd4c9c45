//! Numbers from a seed.

/// A generator (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    /// From `MLX5_SEED`, or the usual seed; another one for each `stream`.
    pub(crate) fn new(stream: u64) -> Self {
        let seed =
            std::env::var("MLX5_SEED").ok().map_or(5, |text| text.parse().expect("MLX5_SEED is a number"));
        println!("- seed {seed}");
        Self(seed ^ stream << 32)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Less than `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Once in `n`.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
