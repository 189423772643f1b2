# Runs a server until its holder is gone. Standard input is a pipe that the holder never writes to: however the holder ends, the kernel
# closes the pipe, and the server is stopped. Its holder may be killed with -9 at any moment, and the server must not stay behind.
#
# $1 signal that stops the server cleanly   $2 tenths of a second until it is killed   $3 folder to remove after a stop, or empty
# $4... the server and its arguments. The server's process id is written to the file server.pid in the current folder.
signal=$1 tenths=$2 remove=$3
shift 3
exec 3<&0 </dev/null
stopping=
trap 'stopping=1' USR1
"$@" 3<&- &
server=$!
echo "$server" >server.pid
# Told again and again, because a signal that comes before `wait` begins would be lost.
(
    read -r _ <&3
    told=0
    while [ "$told" -lt 100 ] && kill -s USR1 $$; do
        told=$((told + 1))
        sleep 0.2
    done
) >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$server"
code=$?
if [ -n "$stopping" ]; then
    kill -s "$signal" "$server"
    # One that was halted must go on to be able to stop.
    kill -s CONT "$server"
    waited=0
    while [ "$waited" -lt "$tenths" ] && kill -s 0 "$server"; do
        waited=$((waited + 1))
        sleep 0.1
    done
    kill -s KILL "$server"
    wait "$server"
    code=$?
    [ -z "$remove" ] || rm -rf -- "$remove" || rm -rf -- "$remove"
fi 2>/dev/null
kill "$watcher" 2>/dev/null
exit "$code"
