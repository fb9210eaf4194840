# Functions for comparisons of PostgreSQL in overload: a server, what is in front of it and its clients, in one control
# group. bench/overload/database and bench/overload/dynamics source this in the root of the repository, with their
# arguments, `CASE [REPEATS]`.

case=${1:-}
repeats=${2:-5}
assay=target/release/assay
load=target/release/examples/load
bare=target/release/examples/bare
port=5498 proxy_port=6498
server= proxy= loads=

stop() { echo "$0: $1" >&2; exit 1; }

# Returns how the process has ended.
end() {
    [ -n "$1" ] || return 0
    kill "-$2" "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null
}

cleanup() {
    end "$loads" KILL || true
    end "$proxy" TERM || true
    end "$server" QUIT || true
    rm -rf "$work"
    rmdir "$server_group" "$group"
}

# shellcheck disable=SC2016 # The shell that joins the group expands it.
join='echo $$ >"$0/cgroup.procs" && exec "$@"'
# inside SIGNAL PROGRAM ...: becomes a program in the group, which gets the signal if this script ends.
inside() {
    signal=$1
    shift
    exec setpriv --pdeathsig "$signal" sh -c "$join" "$group" "$@"
}
as_postgres="setpriv --reuid=postgres --regid=postgres --clear-groups"

# Over its own socket: another server may have the port.
sql() { psql -XqAt -h "$work" -p $port -U postgres -v ON_ERROR_STOP=1 "$@"; }

# await HOST PORT DATABASE PROCESS: waits until the process answers.
await() {
    for _ in $(seq 600); do
        answer=$(psql -XqAt -h "$1" -p "$2" -U postgres -d "$3" -c 'SELECT 1' 2>/dev/null) || true
        kill -0 "$4" 2>/dev/null || break
        [ "$answer" != 1 ] || return 0
        sleep 0.1
    done
    return 1
}

# serve KIND ...: makes the control group, and starts a server that has the tables for these transactions of the load,
# in the database `base`. All ends with this script; if it is killed (SIGKILL), what it has started ends, but
# /dev/shm/assay-overload.* and the control groups of this name stay. Needs root.
serve() {
    [ -x "$assay" ] && [ -x "$load" ] && [ -x "$bare" ] ||
        stop "not built; run: cargo build --release --package assay --package assay-proxy --bin assay --examples"
    [ "$(id -u)" = 0 ] || stop "not root; the server runs as the user postgres, and in a control group"
    programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
    command -v pgbouncer >/dev/null && [ -x "$programs/postgres" ] || stop "run scripts/setup overload first"
    # PgBouncer does not accept more clients than it may have descriptors.
    ulimit -n 20000
    umask 022
    export PGCONNECT_TIMEOUT=5

    # With cgroup v1, a hierarchy of its own. Outside of a group of its own, each session of a terminal would get an
    # equal part of the processors (autogroup).
    cgroup=/sys/fs/cgroup/cpu
    [ -d $cgroup ] || cgroup=/sys/fs/cgroup
    group=$cgroup/assay-overload.$$
    # Its processor time is read in the unified hierarchy.
    unified=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    case $unified in "" | "$cgroup") server_group=$group/server ;; *) server_group=$unified/assay-overload.$$ ;; esac
    work=$(mktemp -d /dev/shm/assay-overload.XXXXXX)
    trap cleanup EXIT
    trap 'exit 130' HUP INT TERM
    # They may be built anew meanwhile.
    cp "$assay" "$load" "$bare" "$work"
    assay=$work/assay load=$work/load bare=$work/bare
    mkdir "$group" "$server_group"
    if [ -e "$group/cpu.shares" ]; then
        echo 65536 >"$group/cpu.shares"
    elif [ -e "$group/cpu.weight" ]; then
        echo 10000 >"$group/cpu.weight"
    else
        stop "the controller cpu is not enabled in $cgroup/cgroup.subtree_control"
    fi

    chown -R postgres "$work"
    $as_postgres "$programs/initdb" --no-sync --no-locale --auth=trust -U postgres -D "$work/data" >"$work/initdb"
    inside QUIT sh -c "$join" "$server_group" $as_postgres --pdeathsig QUIT "$programs/postgres" -D "$work/data" \
        -k "$work" -p $port -c listen_addresses=127.0.0.1 -c max_connections=1200 \
        -c shared_buffers=1GB -c fsync=off -c synchronous_commit=off -c autovacuum=off >"$work/server" 2>&1 &
    server=$!
    await "$work" $port postgres $server || { cat "$work/server" >&2; stop "the server does not answer"; }
    sql -d postgres -c 'CREATE DATABASE base'
    "$programs/pgbench" -q -i -s 1 -h 127.0.0.1 -p $port -U postgres base >"$work/pgbench" 2>&1 ||
        { cat "$work/pgbench" >&2; stop "pgbench cannot fill the database"; }
    tables=
    case " $* " in *" shop "*) tables=bench/overload/shop.sql && sql -d base -f $tables ;; esac
    sql -d base <<'SQL'
CREATE TABLE hot (id int PRIMARY KEY, v bigint NOT NULL);
INSERT INTO hot VALUES (1, 0);
CREATE TABLE contended (id int PRIMARY KEY, v bigint NOT NULL);
INSERT INTO contended SELECT id, 0 FROM generate_series(1, 1000) AS id;
VACUUM ANALYZE;
SQL
}

# Makes the database `run` anew, with the tables.
fresh() {
    sql -d postgres -c 'SET client_min_messages = warning' \
        -c 'DROP DATABASE IF EXISTS run WITH (FORCE)' -c 'CREATE DATABASE run TEMPLATE base'
}

# front PROGRAM ...: starts what is in front of the server, which gets SIGTERM if this script ends.
front() {
    inside TERM "$@" >"$work/proxy" 2>&1 &
    proxy=$!
    await 127.0.0.1 $proxy_port run $proxy
}

# guard OPTION ...
guard() { front "$assay" guard --listen 127.0.0.1:$proxy_port --to "host=$work port=$port" "$@"; }

# check_errors SQLSTATES FILE ...: sets `wrong` if the load has reported other errors in these files.
check_errors() {
    expected=$1
    shift
    errors=$(sed -nE "/^error_($expected) /d; s/^error_//p" "$@") ||
        { wrong="what the load has reported cannot be read"; return 0; }
    [ -z "$errors" ] || wrong="errors, SQLSTATE and number: $errors"
}

# check_changes KIND FILE: sets `wrong` if the database has not exactly the changes of the transactions that the load
# has reported in this file as committed.
check_changes() {
    case $1 in
        hot) evidence="SELECT v FROM hot" ;;
        tpc-b) evidence="SELECT count(*) FROM pgbench_history" ;;
        shop) evidence="SELECT number FROM changes" ;;
        deadlock) evidence="SELECT trim_scale(sum(v) / 8) FROM contended" ;;
        select) return 0 ;;
    esac
    reported=$(awk '$1 == "changes_in_all" { n++; sum += $2 } END { if (!n) exit 1; printf "%d", sum }' "$2") ||
        { wrong="the load has not reported its changes"; return 0; }
    changed=$(sql -d run -c "$evidence") || { wrong="the database cannot be read"; return 0; }
    [ "$changed" = "$reported" ] ||
        wrong="$reported changes were reported, but the database has ${changed:-none that are whole}"
}

# measure RUNS FIRST FILE ...: calls `run FRONT CLIENTS` for each line `FRONT CLIENTS`; in each repeat, the line FIRST, if
# there is one, comes before the others, which are in a random order. `run` sets `figures`, or `wrong` if there are none.
# They become a line `repeat front clients figures` or `repeat front clients wrong: reason` of target/overload/CASE. A
# run that has figures there is not done again, unless a program has changed since, or one of the files: then, that file
# becomes CASE.before. One that went wrong is done again, and its line stays.
measure() {
    runs=$1 first=$2
    shift 2
    results=target/overload/$case
    setting=$({
        # shellcheck disable=SC2086 # One file, or none.
        cat "$assay" "$load" "bench/overload/${0##*/}" bench/overload/postgres.sh $tables "$@"
        "$programs/postgres" --version
        pgbouncer --version
        uname -r
        nproc
        grep -m 1 "^model name" /proc/cpuinfo
    } | sha256sum | cut -c -16)
    mkdir -p target/overload
    if [ "$(head -n 1 "$results" 2>/dev/null)" != "# $setting" ]; then
        [ ! -e "$results" ] ||
            { mv "$results" "$results.before"; echo "$results.before is of other programs" >&2; }
        echo "# $setting" >"$results"
    fi
    for repeat in $(seq "$repeats"); do
        # Not from a pipe: what it starts has to be known at the end.
        while read -r name many; do
            grep -q "^$repeat $name $many [0-9]" "$results" && continue
            wrong=
            : >"$work/proxy"
            run "$name" "$many" </dev/null
            if [ -n "$wrong" ]; then
                figures="wrong: $(echo "$wrong" | tr '\n' ' ')"
                tail -n 20 "$work/proxy" "$work/server" >&2
            fi
            echo "$repeat $name $many $figures" >>"$results"
            echo "$repeat of $repeats: $name, $many clients: $figures" >&2
        done <<RUNS
$([ -z "$first" ] || echo "$first"; echo "$runs" | shuf)
RUNS
    done
}
