// A peer to compare with: Pion v3 as an echo server. WHIP in front: POST an offer to /whip (201, Location), DELETE there
// hangs up. Each RTP packet goes back as it came; interceptors, buffers and sockets are what Pion has by default.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/pion/interceptor"
	"github.com/pion/webrtc/v3"
)

type server struct {
	api      *webrtc.API
	mutex    sync.Mutex
	sessions map[string]*webrtc.PeerConnection
	last     int
}

func main() {
	media := &webrtc.MediaEngine{}
	interceptors := &interceptor.Registry{}
	if err := media.RegisterDefaultCodecs(); err != nil {
		log.Fatal(err)
	}
	if err := webrtc.RegisterDefaultInterceptors(media, interceptors); err != nil {
		log.Fatal(err)
	}
	settings := webrtc.SettingEngine{}
	settings.SetLite(true)
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetInterfaceFilter(func(name string) bool { return name == "lo" })
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	api := webrtc.NewAPI(
		webrtc.WithMediaEngine(media),
		webrtc.WithInterceptorRegistry(interceptors),
		webrtc.WithSettingEngine(settings),
	)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	echo := &server{api: api, sessions: make(map[string]*webrtc.PeerConnection)}
	http.HandleFunc("/whip", echo.open)
	http.HandleFunc("/whip/", echo.close)
	// The script that started it waits for this line.
	fmt.Printf("http://%s/whip\n", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}

func (s *server) open(w http.ResponseWriter, r *http.Request) {
	offer, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil {
		return
	}
	connection, answer, err := s.accept(string(offer))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mutex.Lock()
	s.last++
	id := strconv.Itoa(s.last)
	s.sessions[id] = connection
	s.mutex.Unlock()
	w.Header().Set("Content-Type", "application/sdp")
	w.Header().Set("Location", "/whip/"+id)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

func (s *server) close(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, "/whip/")
	s.mutex.Lock()
	connection, found := s.sessions[id]
	delete(s.sessions, id)
	s.mutex.Unlock()
	if !found {
		http.NotFound(w, r)
		return
	}
	_ = connection.Close()
}

func (s *server) accept(offer string) (*webrtc.PeerConnection, string, error) {
	connection, err := s.api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, "", err
	}
	answer, err := echo(connection, offer)
	if err != nil {
		_ = connection.Close()
		return nil, "", err
	}
	return connection, answer, nil
}

func echo(connection *webrtc.PeerConnection, offer string) (string, error) {
	opus := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2}
	back, err := webrtc.NewTrackLocalStaticRTP(opus, "audio", "echo")
	if err != nil {
		return "", err
	}
	sender, err := connection.AddTrack(back)
	if err != nil {
		return "", err
	}
	// Interceptors see incoming RTCP only if it is read.
	go func() {
		buffer := make([]byte, 1500)
		for {
			if _, _, err := sender.Read(buffer); err != nil {
				return
			}
		}
	}()
	connection.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			packet, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			if err := back.WriteRTP(packet); err != nil {
				return
			}
		}
	})
	if err := connection.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}); err != nil {
		return "", err
	}
	answer, err := connection.CreateAnswer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(connection)
	if err := connection.SetLocalDescription(answer); err != nil {
		return "", err
	}
	<-gathered
	return connection.LocalDescription().SDP, nil
}
