//! A shop on the web: interactions in the frequencies of TPC-W's shopping mix, on the tables of
//! `bench/overload/shop.sql`.
//!
//! Its calls are like those of TPC-W, and simpler. There are no pages and no times to think, and no
//! interaction follows from the one before: an order has three items at random, not those of a cart. Demand
//! for items is more skewed than in TPC-W, so that orders wait for each other.

use std::collections::VecDeque;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg64Mcg;

use super::{Statement, transaction};

/// Customers and items, and the subjects of items.
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

/// Makes the statements of an interaction.
type Statements = fn(&mut Pcg64Mcg) -> VecDeque<Statement>;

/// A kind of interaction.
struct Interaction {
    #[cfg_attr(not(test), expect(dead_code, reason = "names the calls in the golden file"))]
    name: &'static str,
    /// In 10,000 interactions.
    frequency: u32,
    statements: Statements,
}

impl Interaction {
    const fn new(name: &'static str, frequency: u32, statements: Statements) -> Self {
        Self { name, frequency, statements }
    }
}

const MIX: [Interaction; 14] = [
    Interaction::new("home", 1600, home),
    Interaction::new("new products", 500, new_products),
    Interaction::new("best sellers", 500, best_sellers),
    Interaction::new("product detail", 1700, product_detail),
    Interaction::new("search request", 2000, search_request),
    Interaction::new("search results", 1700, search_results),
    Interaction::new("shopping cart", 1160, shopping_cart),
    Interaction::new("customer registration", 300, customer_registration),
    Interaction::new("buy request", 260, buy_request),
    Interaction::new("buy confirm", 120, buy_confirm),
    Interaction::new("order inquiry", 75, customer_registration),
    Interaction::new("order display", 66, order_display),
    Interaction::new("admin request", 10, product_detail),
    Interaction::new("admin confirm", 9, admin_confirm),
];

/// Returns the statements of the next interaction.
pub fn interaction(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    (next(random).statements)(random)
}

fn next(random: &mut Pcg64Mcg) -> &'static Interaction {
    MIX.choose_weighted(random, |kind| kind.frequency).expect("the frequencies are above zero")
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
         WHERE orders > (SELECT id FROM orders ORDER BY id DESC OFFSET 3333 LIMIT 1) AND subject = {} \
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
    transaction([Statement::insert(text), total(customer)])
}

fn customer_registration(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    VecDeque::from([name_of(customer(random))])
}

/// One customer in five is new.
fn buy_request(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let customer = customer(random);
    let login = if random.random_range(0..5) == 0 {
        let text = format!("INSERT INTO customer (name, visits) VALUES ('{}', 0)", word(random));
        Statement::insert(text)
    } else {
        Statement::update(format!("UPDATE customer SET visits = visits + 1 WHERE id = {customer}"))
    };
    transaction([login, name_of(customer), total(customer)])
}

/// Each item is taken from the stock, which is filled up before it is empty. As the items are in any order,
/// two transactions can wait for each other.
fn buy_confirm(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let customer = customer(random);
    let order = format!("INSERT INTO orders (customer, placed) VALUES ({customer}, CURRENT_TIMESTAMP)");
    let mut statements = vec![total(customer), Statement::insert(order)];
    for _ in 0..LINES {
        let item = item(random);
        let line = format!("INSERT INTO order_line VALUES (currval('orders_id_seq'), {item}, 1)");
        let stock = format!(
            "UPDATE item SET sold = sold + 1, \
             stock = CASE WHEN stock > 10 THEN stock - 1 ELSE stock + 20 END WHERE id = {item}"
        );
        statements.extend([Statement::insert(line), Statement::update(stock)]);
    }
    let payment = "INSERT INTO payment VALUES (currval('orders_id_seq'), CURRENT_TIMESTAMP)";
    statements.push(Statement::insert(payment));
    transaction(statements)
}

/// The last order of a customer, if there is one.
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

/// Reads the items that are shown beside another one.
fn related(item: u32) -> Statement {
    let text = format!(
        "SELECT id, title, price FROM item \
         WHERE id = ANY (ARRAY(SELECT unnest(related) FROM item WHERE id = {item}))"
    );
    Statement::new(text, "SELECT 5")
}

/// Reads what a cart contains in all.
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
/// distribution): more than a quarter of it is for one item, which is in three of five orders.
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
        // Calls that differ in values only are counted together; the first one stands for all.
        let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
        let mut calls: BTreeMap<(&str, String), (Statement, u32)> = BTreeMap::new();
        for _ in 0..10_000 {
            let kind = next(&mut random);
            *kinds.entry(kind.name).or_default() += 1;
            for statement in (kind.statements)(&mut random) {
                calls.entry((kind.name, shape(&statement.text))).or_insert((statement, 0)).1 += 1;
            }
        }
        let mut text = String::new();
        for Interaction { name, frequency, .. } in MIX {
            let _ = writeln!(text, "{name}: {} of 10000, expected {frequency}", kinds[name]);
            for (_, (call, count)) in calls.iter().filter(|((kind, _), _)| *kind == name) {
                let _ = writeln!(text, "{count:>6} {} -> {}", call.text, call.tag);
            }
        }
        expect_file!["shop.golden"].assert_eq(&text);
    }

    #[test]
    fn demand_for_items_is_skewed() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let items: Vec<u32> = (0..10_000).map(|_| item(&mut random)).collect();
        let up_to = |last: u32| items.iter().filter(|item| **item <= last).count();
        assert!(items.iter().all(|item| (1..=ITEMS).contains(item)));
        assert!((2600..3000).contains(&up_to(1)), "{}", up_to(1));
        assert!((7800..8200).contains(&up_to(ITEMS / 5)), "{}", up_to(ITEMS / 5));
    }
}
