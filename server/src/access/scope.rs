//! What a registry client asks a session for: what it may do of what its token may (the distribution project's token scopes).

use crate::repositories::RepositoryName;

/// What can be done to a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Reads what is in it.
    Pull,
    /// Uploads blobs and manifests, and moves tags.
    Push,
    /// Deletes blobs, manifests and tags.
    Delete,
}

/// The part of its token's grants that a session has. A repository is that one, and none below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SessionScope {
    /// All that the token may do in the registry.
    everything: bool,
    /// The list of the repositories that the token may read.
    catalog: bool,
    repositories: Vec<Asked>,
}

/// A repository, and what is asked for in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    name: RepositoryName,
    pull: bool,
    push: bool,
    delete: bool,
}

impl SessionScope {
    /// What texts such as `repository:NAME:pull,push` and `registry:catalog:*` ask for, several in one with spaces between. No text at all asks for
    /// everything; what is none that is known asks for nothing.
    pub(crate) fn of(texts: &[String]) -> Self {
        let all = texts.join(" ");
        Self::of_text((!all.trim_ascii().is_empty()).then_some(&all))
    }

    /// As [`Self::text`] gave it.
    pub(super) fn of_text(text: Option<&str>) -> Self {
        let mut asked = Self { everything: text.is_none(), ..Self::default() };
        text.into_iter().flat_map(str::split_ascii_whitespace).for_each(|scope| asked.add(scope));
        asked
    }

    /// In the words in which it is asked for; `None` for everything.
    pub(super) fn text(&self) -> Option<String> {
        let catalog = self.catalog.then(|| "registry:catalog:*".to_owned());
        let repositories = self.repositories.iter().map(Asked::text);
        (!self.everything).then(|| catalog.into_iter().chain(repositories).collect::<Vec<_>>().join(" "))
    }

    fn add(&mut self, scope: &str) {
        if scope.starts_with("registry:catalog:") {
            self.catalog = true;
            return;
        }
        let parts = scope.strip_prefix("repository:").and_then(|rest| rest.rsplit_once(':'));
        let Some((name, actions)) = parts else { return };
        let Ok(name) = name.parse::<RepositoryName>() else { return };
        let has = |wanted: &str| actions.split(',').any(|action| action == wanted || action == "*");
        let asked = Asked { name, pull: has("pull"), push: has("push"), delete: has("delete") };
        match self.repositories.iter_mut().find(|known| known.name == asked.name) {
            Some(known) => known.join(&asked),
            None => self.repositories.push(asked),
        }
    }

    /// It without the repositories of which nothing is `granted`, of which a client may name as many as it likes.
    pub(crate) fn within(mut self, granted: impl Fn(&RepositoryName, Action) -> bool) -> Self {
        for asked in &mut self.repositories {
            asked.pull &= granted(&asked.name, Action::Pull);
            asked.push &= granted(&asked.name, Action::Push);
            asked.delete &= granted(&asked.name, Action::Delete);
        }
        self.repositories.retain(|asked| asked.pull || asked.push || asked.delete);
        self
    }

    /// Whether it has all that its token may do in the registry.
    pub(super) fn is_everything(&self) -> bool {
        self.everything
    }

    /// Whether it may have the list of repositories.
    pub(super) fn lists(&self) -> bool {
        self.everything || self.catalog
    }

    /// Whether something was asked for.
    pub(super) fn allows(&self, name: &RepositoryName, action: Action) -> bool {
        self.everything || self.repositories.iter().any(|asked| asked.name == *name && asked.has(action))
    }

    /// The repositories that it may read, where that is not all that its token may.
    pub(super) fn pulled(&self) -> impl Iterator<Item = &RepositoryName> {
        self.repositories.iter().filter(|asked| asked.pull).map(|asked| &asked.name)
    }
}

impl Asked {
    fn has(&self, action: Action) -> bool {
        match action {
            Action::Pull => self.pull,
            Action::Push => self.push,
            Action::Delete => self.delete,
        }
    }

    fn text(&self) -> String {
        let actions = [(self.pull, "pull"), (self.push, "push"), (self.delete, "delete")];
        let actions: Vec<&str> = actions.into_iter().filter_map(|(has, action)| has.then_some(action)).collect();
        format!("repository:{}:{}", self.name, actions.join(","))
    }

    fn join(&mut self, other: &Self) {
        self.pull |= other.pull;
        self.push |= other.push;
        self.delete |= other.delete;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(texts: &[&str]) -> SessionScope {
        SessionScope::of(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    fn allowed(scope: &SessionScope, name: &str) -> [bool; 3] {
        [Action::Pull, Action::Push, Action::Delete].map(|action| scope.allows(&name.parse().unwrap(), action))
    }

    #[test]
    fn a_scope_is_the_repositories_and_actions_that_it_names() {
        for (texts, expected) in [
            (&["repository:a/b:pull"][..], [true, false, false]),
            (&["repository:a/b:push"], [false, true, false]),
            (&["repository:a/b:pull,push"], [true, true, false]),
            (&["repository:a/b:delete"], [false, false, true]),
            (&["repository:a/b:*"], [true, true, true]),
            (&["repository:a/b:pull repository:a/b:delete"], [true, false, true]),
            (&["repository:a/b:pull", "repository:a/b:push"], [true, true, false]),
            (&["repository:a:*", "repository:a/b/c:*", "registry:catalog:*", "repository:a/b", "a/b:*"], [false; 3]),
            (&[], [true, true, true]),
        ] {
            assert_eq!(allowed(&scope(texts), "a/b"), expected, "{texts:?}");
        }
        assert!(scope(&["registry:catalog:*"]).lists() && !scope(&["repository:a/b:*"]).lists());
    }

    #[test]
    fn nothing_stays_of_what_is_not_granted() {
        let asked = scope(&["repository:a:pull,push repository:b:push"]);
        let within = asked.within(|_, action| action == Action::Pull);
        assert_eq!(within, scope(&["repository:a:pull"]));
        // Of which nothing at all stays: that is not everything.
        let nothing = within.within(|_, _| false);
        assert_eq!(allowed(&nothing, "a"), [false; 3]);
        assert_eq!(SessionScope::of_text(nothing.text().as_deref()), nothing);
    }
}
