//! A pole on a cart, on the host: the environment of the `dqn` program.

use crate::numbers::Numbers;

/// The numbers of a state: place and speed of the cart, angle and speed of the pole.
pub const STATE: usize = 4;
/// The number of actions: push left, push right.
pub const ACTIONS: usize = 2;

const SECONDS: f32 = 0.02;
const GRAVITY: f32 = 9.8;
const FORCE: f32 = 10.0;
const CART_MASS: f32 = 1.0;
const POLE_MASS: f32 = 0.1;
/// Half of the pole's length.
const HALF_LENGTH: f32 = 0.5;
const MOST_STEPS: usize = 200;

/// What a push does.
pub struct Outcome {
    /// The state after the push.
    pub state: [f32; STATE],
    /// 1 for each step that the pole stands.
    pub reward: f32,
    /// Whether the pole fell, or the cart left the track.
    pub done: bool,
}

/// The environment.
pub struct Cart {
    state: [f32; STATE],
    steps: usize,
    numbers: Numbers,
}

impl Cart {
    /// Creates a cart at a random state near rest.
    pub fn new(seed: u64) -> Self {
        let mut cart = Self { state: [0.0; STATE], steps: 0, numbers: Numbers::new(seed) };
        cart.reset();
        cart
    }

    /// Starts an episode and returns its first state.
    pub fn reset(&mut self) -> [f32; STATE] {
        self.steps = 0;
        self.state = std::array::from_fn(|_| 0.05 * self.numbers.signed());
        self.state
    }

    /// Pushes the cart left (0) or right (1).
    pub fn push(&mut self, action: usize) -> Outcome {
        let [place, speed, angle, turn] = self.state;
        let force = if action == 1 { FORCE } else { -FORCE };
        let (sin, cos) = angle.sin_cos();
        let mass = CART_MASS + POLE_MASS;
        let common = (force + POLE_MASS * HALF_LENGTH * turn * turn * sin) / mass;
        let inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos * cos / mass);
        let turning = (GRAVITY * sin - cos * common) / inertia;
        let speeding = common - POLE_MASS * HALF_LENGTH * turning * cos / mass;
        let moved = [place + SECONDS * speed, speed + SECONDS * speeding];
        self.state = [moved[0], moved[1], angle + SECONDS * turn, turn + SECONDS * turning];
        self.steps += 1;
        let done = self.state[0].abs() > 2.4 || self.state[2].abs() > 0.21 || self.steps >= MOST_STEPS;
        Outcome { state: self.state, reward: 1.0, done }
    }
}
