//! A shop on the web: interactions in the frequencies of TPC-W's shopping mix, on the tables of
//! `bench/overload/shop.sql`.
//!
//! It is like TPC-W in what is read and changed, not in what is around it: there are no pages and no times to
//! think, and no interaction follows from the one before.

use std::collections::VecDeque;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg64Mcg;

use super::{Statement, transaction};

/// Rows of `customer`, `item` and `item.subject`.
const CUSTOMERS: u32 = 28_800;
const ITEMS: u32 = 10_000;
const SUBJECTS: u32 = 24;

/// Words of titles and names.
const WORDS: [&str; 20] = [
    "anchor", "bridge", "candle", "desert", "engine", "forest", "garden", "harbour", "island", "journey",
    "kingdom", "lantern", "mountain", "night", "ocean", "palace", "river", "silence", "tower", "winter",
];

/// Items of an order.
const LINES: usize = 3;

/// A kind of interaction: its name, how many of 10,000 are of it, and its statements.
type Interaction = (&'static str, u32, fn(&mut Pcg64Mcg) -> VecDeque<Statement>);

const MIX: [Interaction; 14] = [
    ("home", 1600, home),
    ("new products", 500, new_products),
    ("best sellers", 500, best_sellers),
    ("product detail", 1700, product_detail),
    ("search request", 2000, search_request),
    ("search results", 1700, search_results),
    ("shopping cart", 1160, shopping_cart),
    ("customer registration", 300, customer_registration),
    ("buy request", 260, buy_request),
    ("buy confirm", 120, buy_confirm),
    ("order inquiry", 75, customer_registration),
    ("order display", 66, order_display),
    ("admin request", 10, product_detail),
    ("admin confirm", 9, admin_confirm),
];

/// Returns the name of the next interaction, and its statements.
pub fn interaction(random: &mut Pcg64Mcg) -> (&'static str, VecDeque<Statement>) {
    let next = MIX.choose_weighted(random, |(_, frequency, _)| *frequency);
    let (name, _, statements) = next.expect("the frequencies are above zero");
    (name, statements(random))
}

fn home(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    transaction([name_of(customer(random)), related(item(random))])
}

fn new_products(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let text = format!(
        "SELECT item.id, title, name, price FROM item JOIN author ON author.id = item.author \
         WHERE subject = {} ORDER BY published DESC, title LIMIT 50",
        subject(random)
    );
    VecDeque::from([Statement::new(text, "SELECT 50")])
}

/// Of the last 3,333 orders.
fn best_sellers(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let text = format!(
        "SELECT item.id, title, name, sum(quantity) FROM order_line \
         JOIN item ON item.id = order_line.item JOIN author ON author.id = item.author \
         WHERE orders > (SELECT max(id) - 3333 FROM orders) AND subject = {} \
         GROUP BY item.id, title, name ORDER BY sum(quantity) DESC LIMIT 50",
        subject(random)
    );
    VecDeque::from([Statement::new(text, "SELECT 50")])
}

fn product_detail(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let text = format!(
        "SELECT item.*, name FROM item JOIN author ON author.id = item.author WHERE item.id = {}",
        item(random)
    );
    VecDeque::from([Statement::new(text, "SELECT 1")])
}

fn search_request(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    VecDeque::from([related(item(random))])
}

/// By subject, author or title, of which the last one reads all items.
fn search_results(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let condition = match random.random_range(0..3) {
        0 => format!("subject = {}", subject(random)),
        1 => format!("name LIKE '{}%'", word(random)),
        _ => format!("title LIKE '%{}%'", word(random)),
    };
    let text = format!(
        "SELECT item.id, title, name, price FROM item JOIN author ON author.id = item.author \
         WHERE {condition} ORDER BY title LIMIT 50"
    );
    VecDeque::from([Statement::new(text, "SELECT 50")])
}

fn shopping_cart(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let customer = customer(random);
    let text = format!(
        "INSERT INTO cart_line VALUES ({customer}, {}, 1) \
         ON CONFLICT (customer, item) DO UPDATE SET quantity = cart_line.quantity + 1",
        item(random)
    );
    transaction([Statement::new(text, "INSERT 0 1"), total(customer)])
}

fn customer_registration(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    VecDeque::from([name_of(customer(random))])
}

/// A fifth of the customers is new.
fn buy_request(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let customer = customer(random);
    let login = if random.random_range(0..5) == 0 {
        let text = format!("INSERT INTO customer (name, visits) VALUES ('{}', 0)", word(random));
        Statement::new(text, "INSERT 0 1")
    } else {
        Statement::update(format!("UPDATE customer SET visits = visits + 1 WHERE id = {customer}"))
    };
    transaction([login, name_of(customer), total(customer)])
}

/// An order takes its items from the stock, in any order, so that two orders can wait for each other.
fn buy_confirm(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let customer = customer(random);
    let order = format!("INSERT INTO orders (customer, placed) VALUES ({customer}, CURRENT_TIMESTAMP)");
    let mut statements = vec![total(customer), Statement::new(order, "INSERT 0 1")];
    for _ in 0..LINES {
        let item = item(random);
        let line = format!("INSERT INTO order_line VALUES (currval('orders_id_seq'), {item}, 1)");
        // Filled up in time.
        let stock = format!(
            "UPDATE item SET stock = CASE WHEN stock > 10 THEN stock - 1 ELSE stock + 20 END WHERE id = {item}"
        );
        statements.extend([Statement::new(line, "INSERT 0 1"), Statement::update(stock)]);
    }
    let payment = "INSERT INTO payment VALUES (currval('orders_id_seq'), CURRENT_TIMESTAMP)";
    statements.push(Statement::new(payment, "INSERT 0 1"));
    transaction(statements)
}

/// The last order of a customer.
fn order_display(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let text = format!(
        "SELECT max(orders), sum(quantity), sum(quantity * price) \
         FROM order_line JOIN item ON item.id = order_line.item \
         WHERE orders = (SELECT max(id) FROM orders WHERE customer = {})",
        customer(random)
    );
    VecDeque::from([Statement::new(text, "SELECT 1")])
}

fn admin_confirm(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let text = format!(
        "UPDATE item SET price = {}, revisions = revisions + 1 WHERE id = {}",
        random.random_range(100..10_000),
        item(random)
    );
    VecDeque::from([Statement::update(text)])
}

fn name_of(customer: u32) -> Statement {
    Statement::new(format!("SELECT name FROM customer WHERE id = {customer}"), "SELECT 1")
}

/// Items that are shown beside another one.
fn related(item: u32) -> Statement {
    let text = format!(
        "SELECT id, title, price FROM item WHERE id = ANY (ARRAY(SELECT unnest(related) FROM item WHERE id = {item}))"
    );
    Statement::new(text, "SELECT 5")
}

/// What a cart contains.
fn total(customer: u32) -> Statement {
    let text = format!(
        "SELECT sum(quantity), sum(quantity * price) FROM cart_line JOIN item ON item.id = cart_line.item \
         WHERE customer = {customer}"
    );
    Statement::new(text, "SELECT 1")
}

fn customer(random: &mut Pcg64Mcg) -> u32 {
    random.random_range(1..=CUSTOMERS)
}

/// Returns an item. A fifth of the items has four fifths of the demand, and so on within this fifth (a Pareto
/// distribution), so that more than a quarter of it is for one item.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to ITEMS")]
fn item(random: &mut Pcg64Mcg) -> u32 {
    let place = f64::from(ITEMS) * random.random::<f64>().powf(0.2_f64.ln() / 0.8_f64.ln());
    place.ceil().clamp(1.0, f64::from(ITEMS)) as u32
}

fn subject(random: &mut Pcg64Mcg) -> u32 {
    random.random_range(0..SUBJECTS)
}

fn word(random: &mut Pcg64Mcg) -> &'static str {
    WORDS[random.random_range(0..WORDS.len())]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write;

    use expect_test::expect_file;
    use rand::SeedableRng;

    use super::*;

    /// Replaces the values in a statement.
    fn shape(text: &str) -> String {
        let mut shape = String::new();
        for part in text.split_inclusive(|at: char| !at.is_ascii_digit()) {
            let rest = part.trim_start_matches(|at: char| at.is_ascii_digit());
            let _ = write!(shape, "{}{rest}", if rest.len() < part.len() { "N" } else { "" });
        }
        WORDS.iter().fold(shape, |shape, word| shape.replace(word, "WORD"))
    }

    #[test]
    fn ten_thousand_interactions_have_these_calls() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut kinds: BTreeMap<&str, (u32, BTreeMap<String, u32>)> = BTreeMap::new();
        for _ in 0..10_000 {
            let (name, statements) = interaction(&mut random);
            let (count, calls) = kinds.entry(name).or_default();
            *count += 1;
            for statement in statements {
                let call = format!("{} -> {}", shape(&statement.text), statement.tag);
                *calls.entry(call).or_default() += 1;
            }
        }
        let mut text = String::new();
        for (name, frequency, _) in MIX {
            let (count, calls) = &kinds[name];
            let _ = writeln!(text, "{name}: {count} of 10000, expected {frequency}");
            calls.iter().for_each(|(call, count)| {
                let _ = writeln!(text, "{count:>6} {call}");
            });
        }
        expect_file!["shop.golden"].assert_eq(&text);
    }
}
