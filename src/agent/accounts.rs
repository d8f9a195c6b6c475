//! The counts of groups that have ended, by user and by client, so that nothing is lost between two looks at an agent.

use std::collections::BTreeMap;

use crate::agent::pod;
use crate::bindings::fb_counters;

/// Most users of an agent that it counts for. A user of a user namespace may be any of 65,536. Counts of the
/// others are in the sum alone.
const MOST_USERS: usize = 1024;

/// The sum of some groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Groups that were made.
    pub(crate) groups: u64,
    /// Their counters.
    pub(crate) counters: fb_counters,
}

impl Account {
    /// Counts another group.
    pub(crate) fn add(&mut self, counters: &fb_counters) {
        self.groups += 1;
        self.counters = pod::sum(&self.counters, counters);
    }
}

/// Groups that have ended.
#[derive(Default)]
pub(crate) struct Accounts<Client> {
    pub(crate) all: Account,
    pub(crate) users: BTreeMap<u32, Account>,
    clients: BTreeMap<Client, Account>,
}

impl<Client: Ord> Accounts<Client> {
    /// A group of a client of a user has ended.
    pub(crate) fn ended(&mut self, client: Client, uid: u32, counters: &fb_counters) {
        self.all.add(counters);
        self.clients.entry(client).or_default().add(counters);
        if self.users.len() < MOST_USERS || self.users.contains_key(&uid) {
            self.users.entry(uid).or_default().add(counters);
        }
    }

    /// A client has gone; its account, if it had groups.
    pub(crate) fn left(&mut self, client: &Client) -> Option<Account> {
        self.clients.remove(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(contributions_folded: u64) -> fb_counters {
        fb_counters { contributions_folded, ..fb_counters::default() }
    }

    fn of(account: &Account) -> (u64, u64) {
        (account.groups, account.counters.contributions_folded)
    }

    #[test]
    fn groups_count_for_their_client_their_user_and_the_host() {
        let mut accounts = Accounts::default();
        for (client, uid, count) in [(1, 1000, 5), (1, 1000, 6), (2, 1000, 7), (3, 2000, 8)] {
            accounts.ended(client, uid, &folded(count));
        }
        assert_eq!(of(&accounts.all), (4, 26));
        assert_eq!(of(&accounts.users[&1000]), (3, 18));
        assert_eq!(of(&accounts.users[&2000]), (1, 8));
        assert_eq!(accounts.left(&1).as_ref().map(of), Some((2, 11)));
        assert!(accounts.left(&1).is_none());
        assert_eq!(of(&accounts.all), (4, 26), "a client that has gone was there");
    }

    #[test]
    fn nobody_fills_the_memory_with_users() {
        let mut accounts = Accounts::default();
        let users = 2 * MOST_USERS as u32;
        for uid in (0..users).chain([0]) {
            accounts.ended(uid, uid, &folded(1));
            accounts.left(&uid);
        }
        assert_eq!(accounts.users.len(), MOST_USERS);
        assert_eq!(of(&accounts.users[&0]), (2, 2));
        assert_eq!(of(&accounts.all), (u64::from(users) + 1, u64::from(users) + 1));
    }
}
