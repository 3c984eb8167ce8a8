// Leads connections to the ports that the tests have written down to the brokers that run:
// QUORATE_PORTS is {"9092": 40001, ...}. Node loads this file before the tests.
const net = require('net')

const ports = JSON.parse(process.env.QUORATE_PORTS)
const connect = net.Socket.prototype.connect

net.Socket.prototype.connect = function (...args) {
  const first = Array.isArray(args[0]) ? args[0][0] : args[0]
  if (first && ports[first.port] !== undefined) {
    first.port = ports[first.port]
    first.host = '127.0.0.1'
  }
  return connect.apply(this, args)
}
