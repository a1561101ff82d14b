//! What nodes tell each other.

use gen_durable::store::{Poke, Store};

use super::setup::Fixture;

#[tokio::test]
async fn pokes_reach_other_stores_of_the_schema() {
    let f = Fixture::new().await;
    let mut listener = f.store.listen().await.expect("it listens").expect("there are other nodes");
    let pokes = [Poke::Queue("it's; a \"queue\" ☃".into()), Poke::Due(5), Poke::Ended(f.instance().id)];
    let other = super::setup::store(&f.database);
    other.notify(&pokes).await.expect("it tells");
    for poke in pokes {
        assert_eq!(listener.next().await.expect("a poke"), poke);
    }
}
