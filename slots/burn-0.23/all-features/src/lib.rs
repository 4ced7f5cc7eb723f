//! Burn 0.23 with all features that ask something of a backend, in the slot. It owns nothing: that it builds is the
//! test.
