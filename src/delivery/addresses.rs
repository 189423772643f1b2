//! How many streams each address has open here, so that one machine cannot take all the places.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Places for streams, by the address that they come from.
#[derive(Debug)]
pub struct Addresses {
    /// Streams that one address may have open; 0 is no limit.
    max: u64,
    taken: Mutex<HashMap<IpAddr, u64>>,
}

/// A place that a stream takes until this is dropped.
#[derive(Debug)]
pub struct Place {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// With so many places for each address; 0 is no limit.
    #[must_use]
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// Takes a place; `Ok(None)` where nothing is limited, or nothing is known of the address.
    ///
    /// # Errors
    /// The limit, when all places of this address are taken.
    pub fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Option<Place>, u64> {
        let Some(address) = address.filter(|_| self.max > 0).map(one_machine) else { return Ok(None) };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(address).or_default();
        if *count >= self.max {
            return Err(self.max);
        }
        *count += 1;
        Ok(Some(Place { addresses: Arc::clone(self), address }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.addresses.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// What counts as one address: of IPv6 the network of 64 bits, for a machine may use any address in its own.
fn one_machine(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn places_are_taken_and_given_back() {
        let addresses = Addresses::new(2);
        let one = addresses.take(address("192.0.2.1")).unwrap().unwrap();
        let _two = addresses.take(address("::ffff:192.0.2.1")).unwrap().unwrap();
        assert_eq!(addresses.take(address("192.0.2.1")).unwrap_err(), 2);
        assert!(addresses.take(address("192.0.2.2")).unwrap().is_some(), "others have their own");
        drop(one);
        assert!(addresses.take(address("192.0.2.1")).unwrap().is_some());
        assert!(addresses.take(None).unwrap().is_none());
    }

    #[test]
    fn a_network_of_ipv6_is_one_and_nothing_is_kept_without_a_limit() {
        let addresses = Addresses::new(1);
        let place = addresses.take(address("2001:db8::1")).unwrap();
        assert!(addresses.take(address("2001:db8::ffff:2")).is_err());
        assert!(addresses.take(address("2001:db8:0:1::1")).unwrap().is_some());
        drop(place);
        assert!(addresses.taken.lock().unwrap().is_empty());
        assert!(Addresses::new(0).take(address("2001:db8::1")).unwrap().is_none());
    }
}
