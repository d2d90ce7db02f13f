//! How much one caller may ask for: a bucket of turns for each, filled at a steady rate.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::LimitsConfig;

/// Callers that are remembered at once; beyond, those go whose buckets are full again, and then all.
const CALLERS: usize = 65_536;

/// The buckets.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Turns a second.
    rate: f64,
    /// Turns in a full bucket.
    burst: f64,
    buckets: Mutex<HashMap<Key, Bucket>>,
}

/// Who asks: the holder of a token wherever it is, others by their address. A network of IPv6 has one owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Token(String),
    Address(IpAddr),
    Network([u16; 4]),
    Nowhere,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Turns left; below zero where some wait for theirs.
    turns: f64,
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

impl Limits {
    /// The limits of a configuration, if it has any.
    pub(crate) fn new(config: &LimitsConfig) -> Option<Self> {
        let rate = config.requests_per_second?;
        let burst = config.burst.map_or(rate * 10.0, f64::from).max(1.0);
        Some(Self { rate, burst, buckets: Mutex::default() })
    }

    /// Takes a turn for a caller who would wait for `patience`.
    pub(crate) fn take(&self, token: Option<&str>, address: Option<IpAddr>, patience: Duration) -> Turn {
        self.take_at(key(token, address), patience, Instant::now())
    }

    fn take_at(&self, key: Key, patience: Duration, now: Instant) -> Turn {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CALLERS && !buckets.contains_key(&key) {
            buckets.retain(|_, bucket| self.turns(bucket, now) < self.burst);
            if buckets.len() >= CALLERS {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(key).or_insert(Bucket { turns: self.burst, at: now });
        let turns = self.turns(bucket, now) - 1.0;
        let wait = if turns >= 0.0 {
            Duration::ZERO
        } else {
            Duration::try_from_secs_f64(-turns / self.rate).unwrap_or(Duration::MAX)
        };
        if wait > patience {
            return Turn::TooLate(wait);
        }
        *bucket = Bucket { turns, at: now };
        if wait.is_zero() { Turn::Now } else { Turn::In(wait) }
    }

    fn turns(&self, bucket: &Bucket, now: Instant) -> f64 {
        let gained = now.saturating_duration_since(bucket.at).as_secs_f64() * self.rate;
        (bucket.turns + gained).min(self.burst)
    }
}

fn key(token: Option<&str>, address: Option<IpAddr>) -> Key {
    match (token, address) {
        (Some(token), _) => Key::Token(token.to_owned()),
        (None, Some(IpAddr::V6(address))) => match address.to_ipv4_mapped() {
            Some(address) => Key::Address(address.into()),
            None => {
                let [a, b, c, d, ..] = address.segments();
                Key::Network([a, b, c, d])
            }
        },
        (None, Some(address)) => Key::Address(address),
        (None, None) => Key::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits::new(&LimitsConfig { requests_per_second: Some(10.0), burst: Some(2) }).unwrap()
    }

    fn address(text: &str) -> Key {
        key(None, Some(text.parse().unwrap()))
    }

    #[test]
    fn a_burst_is_free_and_the_rest_comes_at_the_rate() {
        let (limits, start) = (limits(), Instant::now());
        let take = |patience, after| {
            limits.take_at(address("10.0.0.1"), Duration::from_millis(patience), start + Duration::from_millis(after))
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
        assert_eq!(key(Some("a"), Some("10.0.0.1".parse().unwrap())), key(Some("a"), None));
    }

    #[test]
    fn many_callers_take_bounded_room() {
        let limits = limits();
        let now = Instant::now();
        for number in 0..(CALLERS as u32 + 10) {
            limits.take_at(Key::Address(IpAddr::from(number.to_be_bytes())), Duration::ZERO, now);
        }
        assert!(limits.buckets.lock().unwrap().len() <= CALLERS);
    }
}
