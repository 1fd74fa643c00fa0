# What the peers' scripts share; sourced by them, and `peer "$@"` is their last line. A script defines
#   install   brings what it needs, builds: may take minutes, leaves nothing to do for the next time
#   serve     launches the peer and says `ready`
#   cleanup   optional: what the script made besides processes and $folder
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
name=$(basename "$0")
checkout=$(cd "$here/../.." && pwd)
# What is built or downloaded stays outside the checkout.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/fronthaul
build=$cache/peers/$name
# The core that the peer has for itself: the first that may be used, because the generator takes the last.
core=${PEER_CORE:-$(taskset -c -p $$ | sed 's/.*: \([0-9]*\).*/\1/')}

as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo -E "$@"; fi; }

# Installs the Debian packages among "$@" that are missing.
debian() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if ((${#missing[@]})); then
    echo "installing ${missing[*]}" >&2
    as_root apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
}

version_of() { dpkg-query -W -f '${Version}' "$1"; }

pids=()

# Starts what is not on the way of the media, where there is room. $! is its pid.
beside() {
  setpriv --pdeathsig KILL "$@" >>"$folder/out" 2>>"$folder/log" &
  pids+=($!)
}

# Starts "$@" on cores $1, in the real-time class where that is allowed and PEER_REAL_TIME is not "no". $! is its pid: each
# program of the prefix becomes the next one.
on_cores() {
  local prefix=(taskset -c "$1")
  shift
  if [[ ${PEER_REAL_TIME:-} != no ]] && chrt -r 1 true 2>/dev/null; then prefix+=(chrt -r 1); fi
  beside "${prefix[@]}" "$@"
}

# Starts the peer: on its core alone.
launch() { on_cores "$core" "$@"; }

# Starts what is on the way of the media and is not the peer: on the other cores.
apart() {
  local others
  others=$(seq 0 $(($(nproc --all) - 1)) | grep -vx "$core" | paste -s -d ,)
  on_cores "${others:-$core}" "$@"
}

# Waits until "$@" succeeds, 20 s at most, as long as all that was started runs.
until_it() {
  local deadline=$((SECONDS + 20)) pid
  until "$@" 2>/dev/null; do
    for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null || fail "ended by itself"; done
    ((SECONDS < deadline)) || fail "not ready within 20 s: $*"
    sleep 0.05
  done
}

# Whether somebody listens on a TCP port of loopback.
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }

# The address of WHIP that something started printed, once it has.
url_said() { url=$(grep -m 1 '^http://' "$folder/out"); }

# A port of loopback that is free now: TCP, or UDP with `udp`.
free_port() {
  node -e '
    const udp = process.argv[1] === "udp";
    const socket = udp ? require("dgram").createSocket("udp4").bind(0, "127.0.0.1") : require("net").createServer().listen(0, "127.0.0.1");
    socket.once("listening", () => { console.log(socket.address().port); socket.close(); });
  ' "${1:-tcp}"
}

fail() {
  echo "$name: $1" >&2
  tail -n 20 "$folder/out" "$folder/log" >&2
  exit 1
}

# ready NAME VERSION URL PID [MORE]: the line that says all; MORE are further members of the object.
ready() {
  printf '{"name":"%s","version":"%s","url":"%s","pids":[%s],"core":%s,%s}\n' "$1" "$2" "$3" "$4" "$core" "${5:-\"namespace\":null}"
}

stop() {
  trap - EXIT INT TERM
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for ((turn = 0; turn < 50; turn++)); do
    for pid in "${pids[@]}"; do
      if kill -0 "$pid" 2>/dev/null; then sleep 0.1 && continue 2; fi
    done
    break
  done
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  if declare -F cleanup >/dev/null; then cleanup; fi
  rm -r "$folder"
}

peer() {
  case ${1:-} in
    install) install ;;
    start)
      install
      # A session may cost a socket, or three.
      ulimit -n "$(ulimit -H -n)"
      folder=$(mktemp -d)
      trap 'status=$?; stop; exit $status' EXIT
      trap 'exit 0' INT TERM
      serve
      # Nothing ends before it is told to.
      wait -n "${pids[@]}" || true
      fail "ended by itself"
      ;;
    *)
      echo "usage: $0 install|start" >&2
      exit 2
      ;;
  esac
}
