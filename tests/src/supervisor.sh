# Owns one throwaway PostgreSQL cluster: supervisor.sh BINDIR DIRECTORY SETTING...
#
# Obeys words read from standard input, one a line, and answers each with "ok" or "failed". The other
# end of that pipe is held by the process that wants the server and by nobody else, so its end of file
# means that this process is gone, however it went: even SIGKILL closes pipes. Then the server is
# stopped and its directory removed. Words are obeyed one after another, so the end never comes upon a
# half-made cluster.
#
# Without an owner nobody reads the answers either, so SIGPIPE must not end this before the cleaning up.
trap '' HUP INT TERM PIPE
bin=$1 dir=$2
shift 2
umask 077
cd "$dir" || exit 1

make() {
    "$bin/initdb" --pgdata=data --username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync &&
        printf '%s\n' "$@" >>data/postgresql.conf
}

start() { "$bin/pg_ctl" start --pgdata=data --wait --timeout=60 --log=server.log; }

stop() { "$bin/pg_ctl" stop --pgdata=data --wait --timeout=60 --mode="$1"; }

while read -r word; do
    case $word in
    make) make "$@" ;;
    start) start ;;
    stop) stop fast ;;
    kill) stop immediate ;;
    *) false ;;
    esac >>supervisor.log 2>&1 && echo ok || echo failed
done

if test -f data/postmaster.pid; then
    stop immediate >/dev/null 2>&1
fi
cd / && rm -rf "$dir"
