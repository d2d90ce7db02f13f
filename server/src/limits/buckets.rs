//! A bucket for each caller, filled at a steady rate: with turns for requests, or with bytes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Callers that are remembered at once; beyond, those go whose buckets are full again, and then all.
const CALLERS: usize = 65_536;

/// The buckets.
#[derive(Debug)]
pub(super) struct Buckets {
    /// What comes in a second.
    rate: f64,
    /// What a full bucket has.
    burst: f64,
    buckets: Mutex<HashMap<Key, Bucket>>,
}

/// Who asks: the holder of a token wherever it is, others by their address. A network of IPv6 has one owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Token(String),
    Address(IpAddr),
    Network([u16; 4]),
    Nowhere,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// What is left; below zero where some wait for their turns, or have yet to pay for bytes.
    left: f64,
    at: Instant,
}

/// When a request may go on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Turn {
    /// Now.
    Now,
    /// After this time; the turn is taken.
    In(Duration),
    /// Not within the time that it would wait: it would be this long. No turn is taken.
    TooLate(Duration),
}

impl Buckets {
    /// Buckets of `burst` at most, in which `rate` comes in a second. Full at first.
    pub(super) fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst: burst.max(1.0), buckets: Mutex::default() }
    }

    /// Takes a turn for a caller who would wait for `patience`.
    pub(super) fn take(&self, key: &Key, patience: Duration, now: Instant) -> Turn {
        self.with(key, now, |bucket| {
            let left = bucket.left - 1.0;
            let wait = self.until(left);
            if wait > patience {
                return Turn::TooLate(wait);
            }
            bucket.left = left;
            if wait.is_zero() { Turn::Now } else { Turn::In(wait) }
        })
    }

    /// How long until a caller's bucket is no longer empty.
    pub(super) fn wait(&self, key: &Key, now: Instant) -> Duration {
        self.with(key, now, |bucket| self.until(bucket.left - 1.0))
    }

    /// Takes so much out of a caller's bucket, also what is not in it: that has to come first.
    pub(super) fn spend(&self, key: &Key, amount: u64, now: Instant) {
        self.with(key, now, |bucket| bucket.left -= amount as f64);
    }

    /// Puts back what was not used after all.
    pub(super) fn give_back(&self, key: &Key, amount: u64, now: Instant) {
        self.with(key, now, |bucket| bucket.left = (bucket.left + amount as f64).min(self.burst));
    }

    /// The time in which a bucket comes from `left` to nothing.
    fn until(&self, left: f64) -> Duration {
        if left >= 0.0 {
            Duration::ZERO
        } else {
            Duration::try_from_secs_f64(-left / self.rate).unwrap_or(Duration::MAX)
        }
    }

    fn with<T>(&self, key: &Key, now: Instant, act: impl FnOnce(&mut Bucket) -> T) -> T {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CALLERS && !buckets.contains_key(key) {
            buckets.retain(|_, bucket| self.filled(bucket, now).left < self.burst);
            if buckets.len() >= CALLERS {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(key.clone()).or_insert(Bucket { left: self.burst, at: now });
        *bucket = self.filled(bucket, now);
        act(bucket)
    }

    fn filled(&self, bucket: &Bucket, now: Instant) -> Bucket {
        let gained = now.saturating_duration_since(bucket.at).as_secs_f64() * self.rate;
        Bucket { left: (bucket.left + gained).min(self.burst), at: now.max(bucket.at) }
    }
}

impl Key {
    /// Who asks, by the id of its token and its address.
    pub(crate) fn of(token: Option<&str>, address: Option<IpAddr>) -> Self {
        match (token, address) {
            (Some(token), _) => Self::Token(token.to_owned()),
            (None, Some(IpAddr::V6(address))) => match address.to_ipv4_mapped() {
                Some(address) => Self::Address(address.into()),
                None => {
                    let [a, b, c, d, ..] = address.segments();
                    Self::Network([a, b, c, d])
                }
            },
            (None, Some(address)) => Self::Address(address),
            (None, None) => Self::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Buckets {
        Buckets::new(10.0, 2.0)
    }

    fn address(text: &str) -> Key {
        Key::of(None, Some(text.parse().unwrap()))
    }

    #[test]
    fn a_burst_is_free_and_the_rest_comes_at_the_rate() {
        let (limits, start) = (limits(), Instant::now());
        let take = |patience, after| {
            limits.take(&address("10.0.0.1"), Duration::from_millis(patience), start + Duration::from_millis(after))
        };
        assert_eq!([take(0, 0), take(0, 0)], [Turn::Now, Turn::Now]);
        let Turn::TooLate(wait) = take(0, 0) else { panic!("a third turn") };
        assert!((wait.as_secs_f64() - 0.1).abs() < 1e-6, "{wait:?}");
        assert_eq!(take(0, 101), Turn::Now);
        let Turn::In(wait) = take(1_000, 101) else { panic!("no turn for the patient") };
        assert!(wait > Duration::from_millis(90) && wait <= Duration::from_millis(100), "{wait:?}");
        // After a pause the bucket is full, and no fuller.
        assert_eq!([take(0, 60_000), take(0, 60_000)], [Turn::Now, Turn::Now]);
        assert!(matches!(take(0, 60_000), Turn::TooLate(_)));
    }

    #[test]
    fn callers_do_not_share_but_a_network_of_ipv6_is_one() {
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
        assert_eq!(Key::of(Some("a"), Some("10.0.0.1".parse().unwrap())), Key::of(Some("a"), None));
    }

    #[test]
    fn whoever_took_more_than_there_was_waits_until_it_has_come() {
        let (bytes, caller, start) = (Buckets::new(100.0, 1000.0), address("10.0.0.1"), Instant::now());
        assert_eq!(bytes.wait(&caller, start), Duration::ZERO);
        bytes.spend(&caller, 1500, start);
        let wait = bytes.wait(&caller, start);
        assert!((wait.as_secs_f64() - 5.01).abs() < 1e-6, "{wait:?}");
        assert_eq!(bytes.wait(&address("10.0.0.2"), start), Duration::ZERO);
        bytes.give_back(&caller, 400, start);
        assert!(bytes.wait(&caller, start) < Duration::from_millis(1020));
        assert_eq!(bytes.wait(&caller, start + Duration::from_secs(2)), Duration::ZERO);
        // What comes back fills no bucket beyond its brim.
        bytes.give_back(&caller, 1 << 40, start);
        bytes.spend(&caller, 1000, start);
        assert!(bytes.wait(&caller, start) > Duration::ZERO);
    }

    #[test]
    fn many_callers_take_bounded_room() {
        let limits = limits();
        let now = Instant::now();
        for number in 0..(CALLERS as u32 + 10) {
            limits.take(&Key::Address(IpAddr::from(number.to_be_bytes())), Duration::ZERO, now);
        }
        assert!(limits.buckets.lock().unwrap().len() <= CALLERS);
    }
}
