//! The model: every schedule of a few processes, one API server and a meddler, up to stated bounds.
//!
//! The processes run the production machine and its operations; nothing of them is written again here. What is modelled
//! is around them: the server's compare-and-set ([`server`]), clocks that run fast or slow, a caller that believes what it
//! was told ([`process`]), requests and replies that are lost, late or doubled, a watch that is stale or silent, and edits
//! by others ([`state`], [`meddling`]). How much of each a run has is in [`bounds`]; the runs themselves, and those with one rule taken
//! away, are in [`runs`]. Longer schedules, drawn at random, are in [`random`]; that the server is like the real one is shown in
//! [`server_compared`].

mod bounds;
mod meddling;
mod mutants;
mod mutations;
mod process;
mod properties;
mod random;
mod reductions;
mod rollout;
mod runs;
mod server;
mod server_compared;
mod server_facts;
mod state;
mod trace;

use stateright::{Model, Property};

use bounds::Bounds;
use state::{Action, State};

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.actions(self, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        last.next(self, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}
